from __future__ import annotations

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from factories.commands import karat_here
from factories.repositories import Repository, curves, golden_text
from karat.config import load
from karat.goldens.paths import PathFilter
from karat.schemas import schema
from karat.system import git

TABLE = "name,accuracy,graph_breaks\nresnet,pass,0\nbert,pass,3\n"
LOSSES = "1 8.03\n2 7.34\n3 5.88\n4 5.18\n"
TEST = "def test_loss(golden):\n    golden.series('loss', [3.0, 2.0, 1.0])\n"


def started(repository: Repository, *words: str) -> dict[str, object]:
    """What `karat init` recognised, as JSON that its schema allows; the written file watches what it says."""
    done = karat_here("init", *words, "--json", "-", cwd=repository.root)
    assert done.code == 0, done.err
    document = json.loads(done.out)
    jsonschema.validate(document, schema("karat.init/1"))
    if document["written"]:
        config = load(repository.root)
        watched = [*filter(PathFilter(config.paths, config.exclude), git.work_tree_files(repository.root))]
        assert (len(watched), config.preset) == (document["goldens"], document["preset"])
    return dict(document)


def names(document: dict[str, object]) -> list[tuple[str, int]]:
    layouts = document["layouts"]
    assert isinstance(layouts, list)
    return [(one["name"], one["goldens"]) for one in layouts]


def test_megatrons_tree_gets_its_preset_and_the_remote(repository: Repository) -> None:
    for case in ("gpt/a", "bert/b"):
        repository.write(
            f"tests/functional_tests/test_cases/{case}/golden_values_dev_dgx_h100.json", golden_text(curves(1, steps=5))
        )
    repository.git("remote", "add", "origin", "git@github.com:NVIDIA/Megatron-LM.git")
    found = started(repository)
    assert names(found) == [("megatron-lm", 2)]
    written = tomllib.loads((repository.root / "karat.toml").read_text(encoding="utf-8"))
    assert written == {"preset": "megatron-lm", "goldens": {}, "refresh": {"repo": "NVIDIA/Megatron-LM"}}


def test_a_folder_with_blanks_and_letters_of_any_language_is_named_as_it_is(repository: Repository) -> None:
    repository.write("gold größe/gpt/golden_values_dev_dgx_h100.json", golden_text(curves(1, steps=5)))
    started(repository)
    assert 'such as "gold größe/gpt/golden' in (repository.root / "karat.toml").read_text(encoding="utf-8")


def test_tables_and_losses_are_recognised_by_content_wherever_they_are(repository: Repository) -> None:
    repository.write("expected/inductor_training.csv", TABLE)
    repository.write("data/people.csv", "who,age\nAda,36\n")
    repository.write("assets/losses/gpu.txt", LOSSES)
    repository.write("requirements.txt", "numpy\n")
    found = started(repository)
    assert names(found) == [("pytorch-dynamo", 1), ("losses", 1)]
    paths = load(repository.root).paths
    assert {"expected/*.csv", "assets/losses/*.txt"} <= {*paths}
    assert "benchmarks/dynamo/ci_expected_accuracy/**/*.csv" in paths


def test_plain_pytest_watches_what_its_snapshots_will_be(repository: Repository) -> None:
    repository.write("tests/test_loss.py", TEST)
    done = karat_here("init", cwd=repository.root)
    assert (done.code, done.err.splitlines()[-1]) == (0, "next: pytest --karat-update")
    assert "golden.series" in (repository.root / "karat.toml").read_text(encoding="utf-8")
    repository.write("tests/goldens/test_loss/test_loss/loss.json", '{"loss": {"1": 3.0}}')
    assert [*filter(PathFilter(load(repository.root).paths), git.work_tree_files(repository.root))] != []


def test_a_configuration_that_is_there_is_left_alone(repository: Repository) -> None:
    repository.write("assets/losses/gpu.txt", LOSSES)
    repository.write("karat.toml", "# mine\n")
    refused = karat_here("init", cwd=repository.root)
    assert (refused.code, "nothing was written" in refused.err) == (2, True)
    assert refused.err.splitlines()[-1] == "next: karat init --dry-run"
    assert (repository.root / "karat.toml").read_text(encoding="utf-8") == "# mine\n"
    assert names(started(repository, "--force")) == [("losses", 1)]


def test_pyprojects_table_is_a_configuration_that_force_does_not_replace(repository: Repository) -> None:
    repository.write("assets/losses/gpu.txt", LOSSES)
    repository.write("pyproject.toml", "[tool.karat]\n")
    assert karat_here("init", "--force", cwd=repository.root).code == 2
    assert not (repository.root / "karat.toml").exists()


def test_a_dry_run_writes_nothing_and_shows_the_file(repository: Repository) -> None:
    repository.write("assets/losses/gpu.txt", LOSSES)
    done = karat_here("init", "--dry-run", cwd=repository.root)
    assert '    "assets/losses/*.txt",' in done.out.splitlines()
    assert not (repository.root / "karat.toml").exists()
    assert started(repository, "--dry-run")["written"] is False


def test_nothing_to_watch_is_no_success(repository: Repository) -> None:
    repository.write("main.c", "int main() {}\n")
    done = karat_here("init", cwd=repository.root)
    assert (done.code, "found none in 1 file" in done.err) == (3, True)


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "layout"), [("megatron", "megatron-lm"), ("pytorch", "pytorch-dynamo")])
def test_real_trees(shared_data: Path, folder: str, layout: str) -> None:
    done = karat_here("init", "--dry-run", "--json", "-", cwd=shared_data / folder)
    found = json.loads(done.out)
    assert (found["preset"], found["layouts"][0]["name"]) == (layout, layout)
    assert found["goldens"] >= sum(one["goldens"] for one in found["layouts"]) > 10
