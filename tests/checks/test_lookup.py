from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from factories.repositories import Repository
from karat.checks import lookup as tree_module
from karat.checks.lookup import Pairing, Where, pair_up
from karat.findings import UsageError
from karat.goldens.paths import DEFAULT_GLOBS, identity_of
from karat.settings import CheckSettings

CASES = ("**/{model}/{case}/golden_values_{lane}_{platform}.json",)
TREE = "tests/{}/golden_values_dev_{}.json"


def where(cwd: Path, **sets: Any) -> Where:
    return Where(cwd=cwd, **{"globs": DEFAULT_GLOBS, "cases": CASES, **sets})


def pairs(found: Sequence[Pairing]) -> list[tuple[str | None, str | None]]:
    return [(p.actual.name if p.actual else None, p.golden.name if p.golden else None) for p in found]


@pytest.fixture
def tree(repository: Repository) -> Path:
    for case in ("gpt/a", "gpt/b"):
        for platform in ("h100", "a100"):
            repository.write(TREE.format(case, platform), "{}")
    repository.write("bench/expected_results.csv", "x")
    repository.write("out/expected_results.csv", "x")
    repository.write(".gitignore", "out/\n")
    return repository.root


def test_a_golden_is_found_by_the_identity_in_the_path(tree: Path) -> None:
    result = "out/gpt/b/golden_values_dev_a100.json"
    (tree / result).parent.mkdir(parents=True)
    (tree / result).touch()
    assert pairs(pair_up([result], "auto", where(tree))) == [(result, TREE.format("gpt/b", "a100"))]


def test_identity_on_the_command_line_fills_in_what_the_path_does_not_say(tree: Path) -> None:
    (tree / "out/result.json").touch()
    said = {"case": "a", "platform": "h100"}
    found = pair_up(["out/result.json"], "auto", where(tree, identity=said))
    assert pairs(found) == [("out/result.json", TREE.format("gpt/a", "h100"))]


def test_two_that_fit_are_an_error_that_names_them(tree: Path) -> None:
    (tree / "out/golden_values_dev_h100.json").touch()
    with pytest.raises(UsageError) as caught:
        pair_up(["out/golden_values_dev_h100.json"], "auto", where(tree))
    assert "found 2 by its file name" in str(caught.value)
    assert TREE.format("gpt/a", "h100") in str(caught.value)
    assert "--golden" in caught.value.next_command


def test_of_several_with_one_identity_the_one_of_its_name_is_it(tree: Path) -> None:
    """The folder of a result often says nothing, and its name the platform."""
    result = "out/golden_values_dev_h100.json"
    (tree / result).touch()
    found = pair_up([result], "auto", where(tree, identity={"case": "a"}))
    assert pairs(found) == [(result, TREE.format("gpt/a", "h100"))]
    (tree / "out/other.json").touch()
    with pytest.raises(UsageError, match="found 2 by its identity"):
        pair_up(["out/other.json"], "auto", where(tree, identity={"case": "a"}))


def test_the_only_golden_of_that_file_name_is_it(tree: Path) -> None:
    found = pair_up(["out/expected_results.csv"], "auto", where(tree))
    assert pairs(found) == [("out/expected_results.csv", "bench/expected_results.csv")]


def test_a_result_is_never_its_own_golden(tree: Path) -> None:
    found = pair_up(["bench/expected_results.csv"], "auto", where(tree))
    assert pairs(found) == [("bench/expected_results.csv", None)]


def test_a_file_name_does_not_overrule_an_identity(repository: Repository) -> None:
    repository.write(TREE.format("bert/x", "h100"), "{}")
    result = repository.write("out/gpt/new/golden_values_dev_h100.json", "{}")
    repository.write(".gitignore", "out/\n")
    found = pair_up([str(result)], "auto", where(repository.root))
    assert found[0].golden is None
    assert "case=new" in found[0].why


def test_a_configured_pattern_reads_the_identity_off_the_path(tree: Path) -> None:
    settings = CheckSettings(actual=("out/{platform}/{case}.json",))
    (tree / "out/h100").mkdir()
    (tree / "out/h100/a.json").touch()
    found = pair_up(["out/h100/a.json"], "auto", where(tree, settings=settings))
    assert pairs(found) == [("out/h100/a.json", TREE.format("gpt/a", "h100"))]


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name in ("goldens/a/x.json", "goldens/b/x.json", "new/a/x.json", "new/c/x.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    return tmp_path


def test_folders_are_paired_by_path_and_nothing_is_left_out(folders: Path) -> None:
    assert pairs(pair_up(["new"], "goldens", where(folders))) == [
        ("new/a/x.json", "a/x.json"),
        ("new/c/x.json", None),
        (None, "b/x.json"),
    ]


def test_a_golden_in_a_named_folder_is_called_as_the_repository_calls_it(tree: Path) -> None:
    for case in ("gpt/a", "gpt/b"):
        for platform in ("h100", "a100"):
            result = tree / "out" / case / f"golden_values_dev_{platform}.json"
            result.parent.mkdir(parents=True, exist_ok=True)
            result.touch()
    found = pair_up(["out"], "tests", where(tree))
    names = {golden for _, golden in pairs(found) if golden}
    assert names == {TREE.format(c, p) for c in ("gpt/a", "gpt/b") for p in ("h100", "a100")}
    assert all(p.actual for p in found)


def test_karats_own_files_are_neither_results_nor_goldens(folders: Path) -> None:
    for name in ("goldens/a/x.samples.json", "goldens/goldens.lock.json", "new/goldens.lock.json"):
        (folders / name).write_text("{}")
    assert len(pair_up(["new"], "goldens", where(folders))) == 3


def test_only_narrows_both_sides(folders: Path) -> None:
    assert pairs(pair_up(["new"], "goldens", where(folders, only=("b",)))) == [(None, "b/x.json")]
    assert pairs(pair_up(["new"], "goldens", where(folders, only=("a/*",)))) == [("new/a/x.json", "a/x.json")]


def test_a_file_against_a_folder_does_not_ask_for_the_others(folders: Path) -> None:
    (folders / "goldens/only.json").write_text("{}")
    (folders / "only.json").write_text("{}")
    assert pairs(pair_up(["only.json"], "goldens", where(folders))) == [("only.json", "only.json")]


def test_two_results_of_a_folder_never_share_a_golden(folders: Path) -> None:
    (folders / "new/a/x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match=r"expected one result for the golden a/x\.json"):
        pair_up(["new"], "goldens", where(folders))


def test_a_folder_against_one_golden_is_an_error(folders: Path) -> None:
    with pytest.raises(UsageError, match="expected a folder of goldens for the folder new"):
        pair_up(["new"], "goldens/a/x.json", where(folders))


def test_the_folder_of_a_run_is_one_result(folders: Path) -> None:
    (folders / "new/run").mkdir()
    (folders / "new/run/events.out.tfevents.1").touch()
    (folders / "goldens/run.json").write_text("{}")
    found = pairs(pair_up(["new"], "goldens", where(folders)))
    assert ("new/run", "run.json") in found
    assert pairs(pair_up(["new/run"], "goldens/run.json", where(folders))) == [("new/run", "goldens/run.json")]


def test_a_golden_that_is_named_needs_no_git(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folders))
    found = pair_up(["new/a/x.json"], "goldens/a/x.json", where(folders))
    assert pairs(found) == [("new/a/x.json", "goldens/a/x.json")]
    assert len(pair_up(["new"], "goldens", where(folders))) == 3


def test_any_file_of_a_named_folder_is_the_golden_of_a_result_at_its_path(folders: Path) -> None:
    """One file that looks like a golden must not turn the others into strangers."""
    (folders / "goldens/golden_values.json").write_text("{}")
    (folders / "new/golden_values.json").write_text("{}")
    assert ("new/a/x.json", "a/x.json") in pairs(pair_up(["new"], "goldens", where(folders)))


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_nothing_is_checked_against_itself(folders: Path, link: Any) -> None:
    link(folders / "link.json", folders / "goldens/a/x.json")
    for word in ("goldens/a/x.json", "link.json"):
        with pytest.raises(UsageError, match="nothing can differ from itself"):
            pair_up([word], "goldens/a/x.json", where(folders))
    with pytest.raises(UsageError, match="found goldens as both"):
        pair_up(["goldens"], "goldens/", where(folders))


def test_the_command_for_a_golden_that_was_overwritten_names_what_git_keeps(tree: Path) -> None:
    with pytest.raises(UsageError) as caught:
        pair_up(["bench/expected_results.csv"], "bench/expected_results.csv", where(tree))
    command = "karat check bench/expected_results.csv --golden HEAD:bench/expected_results.csv"
    assert caught.value.next_command == command


def test_an_identity_that_no_pattern_knows_is_an_error(tree: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'platform'"):
        pair_up(["out/result.json"], "auto", where(tree, identity={"platfrom": "h100"}))


def test_commands_can_be_pasted_whatever_a_result_is_called(tree: Path) -> None:
    (tree / "a b").mkdir()
    (tree / "a b/golden_values_dev_h100.json").touch()
    with pytest.raises(UsageError) as caught:
        pair_up(["../a b/golden_values_dev_h100.json"], "auto", where(tree / "bench"))
    first = TREE.format("gpt/a", "h100")
    assert caught.value.next_command == (f"karat check '../a b/golden_values_dev_h100.json' --golden ../{first}")


def test_a_golden_without_a_result_says_where_one_was_looked_for(folders: Path) -> None:
    lacking = [p for p in pair_up(["new"], "goldens", where(folders)) if p.actual is None]
    assert [p.looked for p in lacking] == [("new",)]


def test_every_path_is_read_once_however_many_results_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for case in range(40):
        for side in ("goldens", "new"):
            folder = tmp_path / side / f"m/{case}"
            folder.mkdir(parents=True)
            (folder / f"golden_values_dev_{side}.json").touch()
    read = []

    def counted(path: str, patterns: Sequence[str]) -> Any:
        read.append(path)
        return {k: v for k, v in identity_of(path, patterns).items() if k != "platform"}

    monkeypatch.setattr(tree_module, "identity_of", counted)
    found = pairs(pair_up(["new"], "goldens", where(tmp_path)))
    assert len(found) == 40
    assert ("new/m/7/golden_values_dev_new.json", "m/7/golden_values_dev_goldens.json") in found
    assert len(read) == 80


def test_a_golden_of_a_second_run_is_another_golden(tree: Path) -> None:
    (tree / TREE.format("gpt/a", "h100_2nd")).touch()
    (tree / "out/result.json").touch()
    for more, platform in (({}, "h100"), ({"again": "_2nd"}, "h100_2nd")):
        said = {"case": "a", "platform": "h100", **more}
        cases = ("**/{model}/{case}/golden_values_{lane}_{platform}{again}.json",)
        found = pair_up(["out/result.json"], "auto", where(tree, identity=said, cases=cases))
        assert pairs(found) == [("out/result.json", TREE.format("gpt/a", platform))]
