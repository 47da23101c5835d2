from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from factories.repositories import Repository
from karat.changepoints.readers.read import SeriesCollection, read
from karat.changepoints.readers.sheets import ReadOptions
from karat.changepoints.series import Outcome, Series
from karat.findings import UsageError


def golden(*losses: Any) -> str:
    values = {str(step): loss for step, loss in enumerate(losses, 1)}
    block = {"start_step": 1, "end_step": len(losses), "step_interval": 1, "values": values}
    return json.dumps({"lm loss": block, "time": block}, indent=1)


def collected(repository: Repository, path: str = "golden.json", **options: Any) -> SeriesCollection:
    return read(options=ReadOptions(**{"metrics": ("lm loss",), "root": repository.root, **options}), goldens=[path])


def only(repository: Repository, path: str = "golden.json", **options: Any) -> Series:
    (series,) = collected(repository, path, **options).series
    return series


def values(series: Series) -> list[tuple[float, ...]]:
    return [point.values for point in series.observations]


def test_every_commit_that_touched_it_is_a_point(repository: Repository) -> None:
    commits = []
    for loss in (9.5, 9.25, 8.5):
        repository.write("golden.json", golden(10.0, loss))
        commits.append(repository.commit())
        repository.write("other", str(loss))
        repository.commit()
    series = only(repository)
    assert values(series) == [(9.5,), (9.25,), (8.5,)]
    assert [point.label[:10] for point in series.observations] == [commit[:10] for commit in commits]
    assert all(point.when is not None for point in series.observations)
    assert series.observations[0].log == f"{commits[0]}:golden.json"


@pytest.mark.parametrize(("step", "value"), [("last", 7.0), ("1", 10.0), ("mean", 8.5)])
def test_which_step_counts(repository: Repository, step: str, value: float) -> None:
    repository.write("golden.json", golden(10.0, "nan", 7.0))
    repository.commit()
    assert values(only(repository, step=step)) == [(value,)]


def test_a_step_that_is_not_there_is_missing(repository: Repository) -> None:
    repository.write("golden.json", golden(10.0))
    repository.commit()
    assert only(repository, step="2").observations[0].outcome is Outcome.MISSING


@pytest.mark.parametrize("step", ["last", "mean"])
def test_a_run_that_died_is_no_value(repository: Repository, step: str) -> None:
    repository.write("golden.json", golden(10.0, 9.0, "nan"))
    repository.commit()
    (point,) = only(repository, step=step).observations
    assert (point.outcome, point.signature) == (Outcome.CRASH, "the value is not a number (nan)")


def test_renames_are_followed_and_told(repository: Repository) -> None:
    repository.write("old/golden.json", golden(*[float(n) for n in range(30)]))
    repository.commit()
    repository.git("mv", "old/golden.json", "golden.json")
    repository.commit()
    repository.write("golden.json", golden(*[float(n) for n in range(29)], 40.0))
    repository.commit()
    found = collected(repository)
    assert values(found.series[0]) == [(29.0,), (29.0,), (40.0,)]
    assert "it was renamed: old/golden.json → golden.json" in found.notes


def test_versions_that_cannot_be_read_are_broken_and_deleted_ones_missing(repository: Repository) -> None:
    for text in (golden(9.0), golden(8.0)[:40], golden(7.0)):
        repository.write("golden.json", text)
        repository.commit()
    (repository.root / "golden.json").unlink()
    repository.commit()
    repository.write("golden.json", golden(6.0))
    repository.commit()
    found = collected(repository)
    assert [point.outcome for point in found.series[0].observations] == [
        Outcome.OK,
        Outcome.BROKEN,
        Outcome.OK,
        Outcome.MISSING,
        Outcome.OK,
    ]
    (finding,) = found.findings
    assert finding.kind == "unreadable"
    assert finding.next is not None
    assert finding.next.startswith("git show ")


def test_the_history_of_what_is_gone_can_be_read_as_well(repository: Repository) -> None:
    repository.write("golden.json", golden(9.0))
    repository.commit()
    (repository.root / "golden.json").unlink()
    assert values(only(repository)) == [(9.0,)]


def test_merged_branches_count_as_their_merge(repository: Repository) -> None:
    repository.write("golden.json", golden(9.0))
    repository.commit()
    repository.git("checkout", "-q", "-b", "side")
    for loss in (5.0, 8.0):
        repository.write("golden.json", golden(loss))
        repository.commit()
    repository.git("checkout", "-q", "main")
    repository.write("other", "x")
    repository.commit()
    repository.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    assert values(only(repository)) == [(9.0,), (8.0,)]


def test_rows_and_columns_of_a_table_are_metrics(repository: Repository) -> None:
    for breaks in (3, 5):
        repository.write("t.csv", f"name,accuracy,graph_breaks\nbert,pass,{breaks}\ngpt,fail,7\n")
        repository.commit()
    found = collected(repository, "t.csv", metrics=()).series
    assert {series.metric: values(series) for series in found} == {
        "bert graph_breaks": [(3.0,), (5.0,)],
        "gpt graph_breaks": [(7.0,), (7.0,)],
    }
    assert len(collected(repository, "t.csv", metrics=("bert *",)).series) == 1


def test_leaves_of_a_document_are_metrics(repository: Repository) -> None:
    repository.write("d.json", '{"a": {"p90": 3.5, "name": "x"}, "n": 2}')
    repository.commit()
    found = collected(repository, "d.json", metrics=()).series
    assert {series.metric: values(series) for series in found} == {"a.p90": [(3.5,)], "n": [(2.0,)]}


def test_wrong_names_are_refused(repository: Repository, tmp_path: Path) -> None:
    repository.write("golden.json", golden(9.0))
    repository.commit()
    with pytest.raises(UsageError, match="did you mean 'lm loss'"):
        collected(repository, metrics=("lm los",))
    with pytest.raises(UsageError, match="found no commit that touched"):
        collected(repository, "none.json")
    with pytest.raises(UsageError, match="expected --golden to be in a git work tree"):
        read(options=ReadOptions(root=tmp_path), goldens=["x.json"])


def test_a_shallow_clone_says_that_its_history_is_cut(repository: Repository, tmp_path: Path) -> None:
    for loss in (9.0, 8.0):
        repository.write("golden.json", golden(loss))
        repository.commit()
    clone = Repository(tmp_path / "clone")
    clone.git("fetch", "-q", "--depth=1", repository.root.as_uri(), "main")
    clone.git("checkout", "-q", "FETCH_HEAD")
    found = collected(clone)
    assert len(found.series[0].observations) == 1
    assert any("the clone is shallow" in note for note in found.notes)


def test_names_that_look_like_options_or_patterns(repository: Repository) -> None:
    for name in ("--all", "*.json", ":(glob)x"):
        repository.write(name, golden(9.0))
    repository.write("a.json", golden(1.0))
    repository.commit()
    for name in ("--all", "*.json", ":(glob)x"):
        assert values(only(repository, name)) == [(9.0,)]


def test_the_next_command_can_be_pasted(repository: Repository) -> None:
    repository.write("a", "")
    repository.commit()
    with pytest.raises(UsageError) as error:
        collected(repository, "no such.json")
    assert error.value.next_command == "git log --oneline -- 'no such.json'"
    for text in ("{", golden(9.0)):
        repository.write("cut short.json", text)
        commit = repository.commit()
        if text == "{":
            first = commit
    (finding,) = collected(repository, "cut short.json").findings
    assert finding.next == f"git show '{first}:cut short.json'"


def test_a_version_is_called_by_the_path_it_had(repository: Repository) -> None:
    repository.write("old.json", golden(9.0))
    first = repository.commit()
    repository.git("mv", "old.json", "new.json")
    second = repository.commit()
    logs = [point.log for point in only(repository, "new.json").observations]
    assert logs == [f"{first}:old.json", f"{second}:new.json"]
