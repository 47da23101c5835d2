"""`karat audit` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from factories.commands import karat, karat_here
from factories.refreshed import ONE, TWO, noisy
from factories.repositories import Repository, golden_text
from karat.schemas import schema

CASES = "tests/functional_tests/test_cases"
pytestmark = pytest.mark.slow


@pytest.fixture
def project(repository: Repository) -> Repository:
    """One golden empty, one whole, and a test without a golden."""
    repository.write("karat.toml", 'preset = "megatron-lm"\n')
    repository.write(ONE, "{}")
    repository.write(TWO, golden_text(noisy(1)))
    for case in ("one", "two", "four"):
        repository.write(f"{CASES}/gpt/{case}/model_config.yaml", "")
    repository.commit()
    return repository


def test_the_answer_comes_first_and_the_next_command_last(project: Repository) -> None:
    found = karat("audit", cwd=project.root)
    assert found.code == 1
    lines = found.out.splitlines()
    assert lines[0] == f"2 goldens: 1 fail, 1 warn · 1 file must not stay so · 3 tests  {CASES}/gpt/"
    assert any(line.startswith("fail empty  1: ") for line in lines)
    assert any("one/golden_values_dev_dgx_h100.json" in line for line in lines)
    assert found.err == f"next: git log --oneline -- {ONE}\n"


def test_reports_agree(project: Repository) -> None:
    words = ("--json", "a.json", "--sarif", "a.sarif", "--html", "a.html", "--quiet")
    found = karat_here("audit", *words, cwd=project.root)
    assert (found.code, found.out, found.err) == (1, "", "")
    data = json.loads((project.root / "a.json").read_bytes())
    jsonschema.validate(data, schema("karat.audit/1"))
    assert (data["goldens"], data["tests"], data["exit_code"]) == (2, 3, 1)
    assert [f["kind"] for f in data["findings"]] == ["empty", "test-without-golden"]
    log = json.loads((project.root / "a.sarif").read_bytes())["runs"][0]
    assert [(r["ruleId"], r["level"]) for r in log["results"]] == [
        ("empty", "error"),
        ("test-without-golden", "warning"),
    ]
    assert log["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == ONE
    page = (project.root / "a.html").read_text()
    assert "one/golden_values_dev_dgx_h100.json" in page
    assert page.count("<script") == 1  # the one that all pages share


def test_a_page_takes_no_markup_from_names(project: Repository) -> None:
    project.write(f"{CASES}/gpt/<img src=x onerror=alert(1)>/golden_values_dev_dgx_h100.json", "")
    page = karat_here("audit", "--html", "-", cwd=project.root).out
    assert "&lt;img src=x" in page
    assert "<img" not in page


@pytest.mark.parametrize(
    ("path", "goldens"), [(".", 1), (f"../{Path(TWO).parent.name}", 1), ("two", 1), ("nowhere", 0)]
)
def test_paths_narrow_it(project: Repository, path: str, goldens: int) -> None:
    found = karat_here("audit", path, "--json", "-", cwd=(project.root / TWO).parent)
    assert json.loads(found.out)["goldens"] == goldens
    assert found.code == (0 if goldens else 3)


def test_fail_on_reaches_the_json(project: Repository) -> None:
    found = karat_here("audit", "four", "two", "--fail-on", "warn", "--json", "-", cwd=project.root)
    assert (found.code, json.loads(found.out)["exit_code"]) == (1, 1)
    assert karat_here("audit", "four", "two", cwd=project.root).code == 0


def test_the_ratchet(project: Repository) -> None:
    words = ("audit", "--baseline", "known.json", "--fail-on", "warn")
    assert karat_here(*words, cwd=project.root).code == 1, "no list forgives nothing"
    refused = karat_here(*words, "--update-baseline", cwd=project.root, CI="true")
    assert refused.code == 2
    assert "a list that a robot makes guards nothing" in refused.err
    assert karat_here(*words, "--update-baseline", cwd=project.root).code == 0
    listed = json.loads((project.root / "known.json").read_bytes())
    jsonschema.validate(listed, schema("karat.audit-baseline/1"))
    assert list(listed) == [f"empty {ONE}", f"test-without-golden {CASES}/gpt/four/model_config.yaml", "schema"]
    assert "2 known" in karat_here(*words, cwd=project.root).out
    project.write(TWO, "")
    assert karat_here(*words, cwd=project.root).code == 1, "what is new fails"
    assert karat_here(*words, "--update-baseline", cwd=project.root).code == 1, "and is not taken up"
    project.write(TWO, golden_text(noisy(1)))
    project.write(ONE, golden_text(noisy(2)))
    stale = karat_here(*words, cwd=project.root)
    assert stale.code == 1
    assert stale.err.endswith("--update-baseline\n"), "what is repaired must leave the list"
    assert karat_here(*words, "--update-baseline", cwd=project.root, CI="true").code == 0
    assert len(json.loads((project.root / "known.json").read_bytes())) == 2


def test_part_of_a_tree_repairs_nothing_elsewhere(project: Repository) -> None:
    words = ("audit", "--baseline", "known.json", "--fail-on", "warn")
    assert karat_here(*words, "--update-baseline", cwd=project.root).code == 0
    assert karat_here(*words, "two", cwd=project.root).code == 0
    refused = karat_here(*words, "two", "--update-baseline", cwd=project.root)
    assert refused.code == 2
    assert refused.err.splitlines()[1] == "next: karat audit --baseline known.json --fail-on warn --update-baseline"


def test_what_was_not_looked_at_is_not_called_repaired(project: Repository, tmp_path: Path) -> None:
    old = "stale-golden " + TWO
    project.write("known.json", json.dumps({old: None, f"empty {ONE}": None, "schema": "karat.audit-baseline/1"}))
    project.commit()
    words = ("audit", "--baseline", "known.json")
    assert karat_here(*words, cwd=project.root).code == 1
    clone = tmp_path / "shallow"
    project.git("clone", "--quiet", "--depth=1", f"file://{project.root}", str(clone))
    found = karat_here(*words, cwd=clone)
    assert "not looked at: how old goldens are; the clone is shallow" in found.out
    assert found.code == 0


def test_wrong_usage(project: Repository) -> None:
    found = karat_here("audit", "--update-baseline", cwd=project.root)
    assert found.code == 2
    assert found.err.startswith("karat: --update-baseline needs --baseline FILE, and no PATH: ")
    project.write("known.json", "[]")
    assert karat_here("audit", "--baseline", "known.json", cwd=project.root).code == 2
