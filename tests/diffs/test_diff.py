from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from factories.repositories import Repository, curves, golden_path, golden_text
from karat.compare.change import Change, PackedRows, Verdict
from karat.diffs import workers
from karat.diffs.diff import DiffOptions, diff
from karat.diffs.report import text
from karat.diffs.result import Diff
from karat.findings import ExitCode, Severity, UsageError, exit_code


def by_path(result: Diff) -> dict[str, Change]:
    return {change.path: change for change in result.changes}


def test_head_against_the_work_tree(repository: Repository) -> None:
    for i in range(3):
        repository.write(golden_path(f"case{i}"), golden_text(curves(i)))
    repository.commit()
    repository.write(golden_path("case0"), golden_text(curves(0), stop=13))
    repository.write(golden_path("case9"), golden_text(curves(9)))
    (repository.root / golden_path("case1")).unlink()
    result = diff(cwd=repository.root)
    changes = by_path(result)
    assert {path: c.verdict for path, c in changes.items()} == {
        golden_path("case0"): Verdict.INCOMPLETE,
        golden_path("case1"): Verdict.REMOVED,
        golden_path("case9"): Verdict.NEW,
    }
    assert result.unchanged == 1
    assert result.changes[0].path == golden_path("case0"), "gravest first"
    assert changes[golden_path("case0")].findings[0].next == f"git restore --source=HEAD -- {golden_path('case0')}"
    assert exit_code(result.all_findings()) == ExitCode.FAIL


def test_two_revisions(repository: Repository) -> None:
    repository.write(golden_path("a"), golden_text(curves(1)))
    first = repository.commit()
    repository.write(golden_path("a"), golden_text(curves(2)))
    second = repository.commit()
    repository.write(golden_path("a"), "broken")
    one = diff(first, second, cwd=repository.root)
    assert [c.path for c in one.changes] == [golden_path("a")]
    assert one.changes[0].verdict is not Verdict.UNREADABLE, "the work tree is not asked"


def test_folders_and_files(tmp_path: Path) -> None:
    for side, seed in (("before", 1), ("after", 2)):
        path = tmp_path / side / "deep er" / "x.json"
        path.parent.mkdir(parents=True)
        path.write_text(golden_text(curves(seed)), encoding="utf-8")
    folders = diff("before", "after", cwd=tmp_path)
    files = diff("before/deep er/x.json", "after/deep er/x.json", cwd=tmp_path)
    assert [c.path for c in folders.changes] == ["deep er/x.json"]
    assert folders.changes[0].metrics == files.changes[0].metrics


def test_a_revision_against_a_folder(repository: Repository, tmp_path: Path) -> None:
    repository.write(golden_path("a"), golden_text(curves(1)))
    repository.commit()
    other = tmp_path / "incoming"
    (other / golden_path("a")).parent.mkdir(parents=True)
    (other / golden_path("a")).write_text(golden_text(curves(1), indent=None), encoding="utf-8")
    result = diff("HEAD", str(other), cwd=repository.root)
    assert [(c.path, c.verdict) for c in result.changes] == [(golden_path("a"), Verdict.SAME)]


def test_one_bad_file_never_costs_the_rest(repository: Repository) -> None:
    bad = {
        "empty": b"",
        "cut": b'{"lm loss": {"values": {"1": 1.0,',
        "binary": bytes(range(256)),
        "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n",
        "conflict": b"<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> other\n",
        "deep": b"[" * 100_000,
        "object": b"{}",
    }
    for name in [*bad, "good"]:
        repository.write(golden_path(name), golden_text(curves(1)))
    repository.commit()
    for name, data in bad.items():
        repository.write(golden_path(name), data)
    repository.write(golden_path("good"), golden_text(curves(2)))
    changes = by_path(diff(cwd=repository.root))
    assert len(changes) == 8
    assert len(changes[golden_path("good")].metrics) == 4
    for name in bad:
        change = changes[golden_path(name)]
        assert change.severity is Severity.FAIL, name
        assert change.verdict in {Verdict.UNREADABLE, Verdict.BREAK, Verdict.INCOMPLETE}, name


def test_a_touched_but_equal_file_is_unchanged(repository: Repository) -> None:
    path = repository.write(golden_path("a"), golden_text(curves(1)))
    repository.commit()
    os.utime(path, (1, 1))
    result = diff(cwd=repository.root)
    assert (result.changes, result.unchanged) == ((), 1)
    assert exit_code(result.all_findings()) == ExitCode.OK


def test_all_reads_unchanged_goldens_as_well(repository: Repository) -> None:
    nothing = {"x": {"start_step": 1, "end_step": 2, "step_interval": 1, "values": {"1": "nan", "2": "nan"}}}
    repository.write(golden_path("hollow"), json.dumps(nothing))
    repository.commit()
    assert diff(cwd=repository.root).changes == ()
    (change,) = diff(cwd=repository.root, options=DiffOptions(everything=True)).changes
    assert change.verdict is Verdict.INCOMPLETE
    assert change.findings


def test_a_moved_golden_is_one_event(repository: Repository) -> None:
    repository.write(golden_path("a"), golden_text(curves(1)))
    repository.commit()
    (repository.root / golden_path("a")).unlink()
    repository.write(golden_path("b"), golden_text(curves(1)))
    result = diff(cwd=repository.root)
    assert {f.kind for f in result.all_findings()} == {"moved-golden"}
    assert exit_code(result.all_findings()) == ExitCode.OK


def test_nothing_compared_is_not_a_match(repository: Repository) -> None:
    repository.write("README", "no goldens here")
    repository.commit()
    result = diff(cwd=repository.root)
    assert [f.kind for f in result.findings] == ["nothing-compared"]
    assert exit_code(result.all_findings()) == ExitCode.CANNOT_VERIFY


def test_only_and_only_metric_narrow_and_say_when_nothing_is_left(repository: Repository) -> None:
    for case in ("a", "b"):
        repository.write(golden_path(case), golden_text(curves(1)))
    repository.commit()
    for case in ("a", "b"):
        repository.write(golden_path(case), golden_text(curves(2)))
    root = repository.root
    for glob in ("**/b/*", "b/*", golden_path("b"), "tests/functional_tests/test_cases/gpt/b"):
        assert [c.path for c in diff(cwd=root, options=DiffOptions(only=[glob])).changes] == [golden_path("b")]
    one = diff(cwd=root, options=DiffOptions(only=["**/b/*"], only_metric=["lm *"]))
    assert [(c.path, [m.metric for m in c.metrics]) for c in one.changes] == [(golden_path("b"), ["lm loss"])]
    quiet = diff(cwd=root, options=DiffOptions(only=["**/a/*"]))
    assert quiet.unchanged == 0
    for nothing in (DiffOptions(only=["nowhere"]), DiffOptions(only_metric=["no such"])):
        result = diff(cwd=root, options=nothing)
        assert exit_code(result.all_findings()) == ExitCode.CANNOT_VERIFY


def test_a_file_that_cannot_be_read_is_cannot_verify(tmp_path: Path) -> None:
    for side in ("old", "new"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "a.json").write_text(golden_text(curves(1)), encoding="utf-8")
    (tmp_path / "new" / "a.json").unlink()
    (tmp_path / "new" / "a.json").symlink_to("/proc/self/mem")  # opens, and then fails to read
    result = diff("old", "new", cwd=tmp_path)
    assert result.changes[0].findings[0].kind == "cannot-read"
    assert exit_code(result.all_findings()) == ExitCode.CANNOT_VERIFY


def test_a_missing_git_object_is_cannot_verify(repository: Repository) -> None:
    repository.write(golden_path("a"), golden_text(curves(1)))
    repository.commit()
    blob = repository.git("rev-parse", f"HEAD:{golden_path('a')}").strip()
    (repository.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    repository.write(golden_path("a"), golden_text(curves(2)))
    result = diff(cwd=repository.root)
    assert [f.kind for f in result.all_findings()] == ["cannot-read"]
    assert exit_code(result.all_findings()) == ExitCode.CANNOT_VERIFY


def test_a_golden_that_is_a_link_is_not_followed(repository: Repository) -> None:
    repository.write(golden_path("a"), golden_text(curves(1)))
    repository.commit()
    path = repository.root / golden_path("a")
    path.unlink()
    path.symlink_to("/etc/passwd")
    result = diff(cwd=repository.root)
    assert [(f.kind, f.path) for f in result.findings] == [("cannot-read", golden_path("a"))]


def test_names_that_are_not_utf8(repository: Repository) -> None:
    name = b"tests/golden_\xff\n x.json"
    path = os.path.join(os.fsencode(repository.root), name)  # noqa: PTH118 - bytes
    os.makedirs(os.path.dirname(path))  # noqa: PTH103, PTH120 - bytes
    Path(os.fsdecode(path)).write_text(golden_text(curves(1)), encoding="utf-8")
    repository.commit()
    Path(os.fsdecode(path)).write_text(golden_text(curves(2)), encoding="utf-8")
    (change,) = diff(cwd=repository.root).changes
    assert os.fsencode(change.path) == name


@pytest.mark.parametrize("words", [("nosuch", None), ("nosuch", "HEAD"), ("HEAD", "nosuch")])
def test_an_unknown_side_is_wrong_usage(repository: Repository, words: tuple[str, str | None]) -> None:
    repository.commit()
    with pytest.raises(UsageError, match="nosuch"):
        diff(*words, cwd=repository.root)


def test_a_range_is_its_two_ends(repository: Repository) -> None:
    for seed in (1, 2):
        repository.write("golden_values_a.json", golden_text(curves(seed)))
        repository.commit(f"seed {seed}")
    ranged, named = (diff(*words, cwd=repository.root) for words in (("HEAD~1..HEAD",), ("HEAD~1", "HEAD")))
    assert [change.path for change in ranged.changes] == ["golden_values_a.json"]
    assert [change.verdict for change in ranged.changes] == [change.verdict for change in named.changes]


@pytest.mark.parametrize("word", ["../nosuch", "./../nosuch", "a/../nosuch"])
def test_a_path_with_two_dots_is_no_range(repository: Repository, word: str) -> None:
    repository.commit("first")
    with pytest.raises(UsageError, match=re.escape(f"found {word!r}: no such path")):
        diff(word, cwd=repository.root)


def test_no_repository_and_no_commit_are_wrong_usage(tmp_path: Path, repository: Repository) -> None:
    with pytest.raises(UsageError, match="git work tree"):
        diff(cwd=tmp_path)
    with pytest.raises(UsageError, match="no commit yet"):
        diff(cwd=repository.root)


def test_a_word_that_is_both_revision_and_path(repository: Repository) -> None:
    repository.write("main/golden.json", golden_text(curves(1)))
    repository.commit()
    with pytest.raises(UsageError, match="both a revision and a path"):
        diff("main", cwd=repository.root)
    assert diff("refs/heads/main", cwd=repository.root).unchanged == 1


def test_a_file_against_a_folder_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text("{}", encoding="utf-8")
    (tmp_path / "d").mkdir()
    with pytest.raises(UsageError, match="two files or two trees"):
        diff("f.json", "d", cwd=tmp_path)


def test_only_unchanged_goldens_is_no_complaint(repository: Repository) -> None:
    for case in ("a", "b"):
        repository.write(golden_path(case), golden_text(curves(1)))
    repository.commit()
    result = diff(cwd=repository.root, options=DiffOptions(only=["**/a/*"]))
    assert (result.changes, result.unchanged, result.findings) == ((), 1, ())


def test_only_metric_agrees_with_its_findings(repository: Repository) -> None:
    for case in ("a", "b"):
        repository.write(golden_path(case), golden_text(curves(1)))
    repository.commit()
    repository.write(golden_path("a"), golden_text({**curves(1), "lm loss": curves(1)["lm loss"] * 3}))
    only_b = {name: curve for name, curve in curves(1).items() if name != "num-zeros"}
    repository.write(golden_path("b"), golden_text(only_b))
    result = diff(cwd=repository.root, options=DiffOptions(only_metric=["num-zeros"]))
    assert {c.path: c.verdict for c in result.changes} == {
        golden_path("a"): Verdict.SAME,
        golden_path("b"): Verdict.INCOMPLETE,
    }


@pytest.mark.parametrize("kind", ["tracked", "untracked", "folder"])
def test_pipes_and_devices_are_not_read(repository: Repository, kind: str) -> None:
    old, new = repository.root / "old", repository.root / "new"
    repository.write("old/golden_x.json", golden_text(curves(1)))
    repository.write("new/golden_x.json", golden_text(curves(1)))
    repository.commit()
    victim = new / ("golden_x.json" if kind != "untracked" else "golden_y.json")
    victim.unlink(missing_ok=True)
    if kind == "folder":
        os.mkfifo(repository.root / "pipe")
        victim.symlink_to(repository.root / "pipe")
        result = diff(str(old), str(new), cwd=repository.root)
    elif kind == "tracked":
        os.mkfifo(victim)
        result = diff(cwd=repository.root)
    else:
        victim.symlink_to("/dev/zero")
        result = diff(cwd=repository.root)
    assert "cannot-read" in {f.kind for f in result.all_findings()}
    assert exit_code(result.all_findings()) == ExitCode.CANNOT_VERIFY


def test_an_old_side_that_cannot_be_read_is_not_verified(repository: Repository) -> None:
    repository.write(golden_path("a"), "{broken")
    repository.commit()
    repository.write(golden_path("a"), golden_text(curves(1)))
    result = diff(cwd=repository.root)
    assert [f.kind for f in result.all_findings()] == ["no-baseline"]
    assert exit_code(result.all_findings()) == ExitCode.CANNOT_VERIFY


def test_an_old_side_that_holds_nothing_is_not_another_type(repository: Repository) -> None:
    """Thirty empty goldens stand in Megatron-LM's history; whoever repairs one is not to be stopped."""
    repository.write(golden_path("a"), "{}")
    repository.commit()
    repository.write(golden_path("a"), golden_text(curves(1)))
    (change,) = diff(cwd=repository.root).changes
    assert (change.verdict, [f.kind for f in change.findings]) == (Verdict.NEW, ["no-baseline"])
    repository.write(golden_path("a"), golden_text(curves(1), stop=12))
    (change,) = diff(cwd=repository.root).changes
    assert (change.verdict, change.findings[0].kind) == (Verdict.INCOMPLETE, "truncated")


def test_a_file_that_only_left_the_index_is_compared(repository: Repository) -> None:
    repository.write(golden_path("a"), golden_text(curves(1)))
    repository.commit()
    repository.git("rm", "--cached", "--quiet", golden_path("a"))
    result = diff(cwd=repository.root)
    assert (result.changes, result.unchanged) == ((), 1)
    repository.write(golden_path("a"), golden_text(curves(2)))
    assert len(diff(cwd=repository.root).changes) == 1


def test_equal_goldens_that_moved_together(repository: Repository) -> None:
    for case in ("a", "b"):
        repository.write(golden_path(case), golden_text(curves(1)))
    repository.commit()
    for case in ("a", "b"):
        (repository.root / golden_path(case)).unlink()
        repository.write(golden_path(f"{case}2"), golden_text(curves(1)))
    assert {f.kind for f in diff(cwd=repository.root).all_findings()} == {"moved-golden"}


def test_a_revision_against_a_folder_of_the_repository(repository: Repository) -> None:
    repository.write("goldens/a.json", golden_text(curves(1)))
    repository.commit()
    repository.write("goldens/a.json", golden_text(curves(2)))
    result = diff("HEAD", "goldens", cwd=repository.root)
    assert [c.path for c in result.changes] == ["a.json"]
    assert result.changes[0].has_baseline


def test_two_sides_without_a_common_path_were_not_compared(tmp_path: Path) -> None:
    for name in ("x/golden.json", "y/deeper/golden.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(golden_text(curves(1)), encoding="utf-8")
    result = diff("x", "y", cwd=tmp_path)
    assert "nothing-compared" in {f.kind for f in result.findings}
    assert exit_code(result.all_findings()) != ExitCode.OK


def test_advice_works_from_a_folder_below(repository: Repository) -> None:
    repository.write(golden_path("a"), golden_text(curves(1)))
    repository.commit()
    repository.write(golden_path("a"), golden_text(curves(1), stop=3))
    repository.write(golden_path("new"), "{")
    repository.write(golden_path("staged"), "{")
    repository.git("add", golden_path("staged"))
    below = repository.root / "tests"
    advice = {c.path: c.findings[0].next for c in diff(cwd=below).changes}
    assert advice[golden_path("a")] == f"git restore --source=HEAD -- ../{golden_path('a')}"
    for command in advice.values():
        subprocess.run(["bash", "-c", str(command)], cwd=below, check=True, capture_output=True)
    assert diff(cwd=below).changes == ()


def test_advice_names_the_preset_and_metrics_with_brackets(tmp_path: Path) -> None:
    for side, factor in (("old", 1.0), ("new", 2.0)):
        path = tmp_path / side / "golden.json"
        path.parent.mkdir()
        path.write_text(golden_text({"loss[0]": curves(1)["lm loss"] * factor}), encoding="utf-8")
    result = diff("old", "new", cwd=tmp_path, options=DiffOptions(preset="megatron-lm"))
    command = result.changes[0].findings[0].next or ""
    assert "--preset megatron-lm" in command
    assert "--only-metric 'loss[0]'" in command
    again = diff("old", "new", cwd=tmp_path, options=DiffOptions(only_metric=["loss[0]"]))
    assert len(again.changes[0].metrics) == 1


def test_only_is_asked_of_two_files_as_well(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(golden_text(curves(1)), encoding="utf-8")
    result = diff("a.json", "b.json", cwd=tmp_path, options=DiffOptions(only=["zzz"]))
    assert exit_code(result.all_findings()) == ExitCode.CANNOT_VERIFY


def test_a_format_only_rewrite_is_not_drift(repository: Repository) -> None:
    text = golden_text(curves(1))
    repository.write(golden_path("a"), text)
    repository.commit()
    blocks = json.loads(text)
    for block in blocks.values():
        block["values"] = {step: v for step, v in block["values"].items() if v != "nan"}
    reordered = {name: dict(reversed(blocks[name].items())) for name in reversed(blocks)}
    repository.write(golden_path("a"), json.dumps(reordered, indent=1) + "\n")
    (change,) = diff(cwd=repository.root).changes
    assert change.verdict is Verdict.SAME
    assert {f.kind: f.severity for f in change.findings} == {
        "dropped-placeholders": Severity.INFO,
        "format-only": Severity.INFO,
    }


WRECKS = {"no bytes": "", "nothing in it": "{}", "half a file": '{"lm loss": {"start_st'}


@pytest.mark.parametrize("before", WRECKS.values(), ids=list(WRECKS))
@pytest.mark.parametrize("after", [*WRECKS.values(), golden_text(curves(1), stop=13), None])
def test_nobody_is_sent_back_to_a_golden_that_is_no_better(
    repository: Repository, before: str, after: str | None
) -> None:
    path = repository.write(golden_path("a"), before)
    repository.commit()
    if after is None:
        path.unlink()
    else:
        path.write_text(f"{after} ")
    (change,) = diff(cwd=repository.root).changes
    failed = [f for f in change.findings if f.severity is Severity.FAIL]
    assert failed
    assert {f.next for f in failed} == {f"git log --oneline -- {golden_path('a')}"}
    subprocess.run(["git", "log", "--oneline", "--", golden_path("a")], cwd=repository.root, check=True)


def test_an_empty_golden_that_stays_empty_is_said_once(repository: Repository) -> None:
    repository.write(golden_path("a"), "{}")
    repository.commit()
    repository.write(golden_path("a"), "{ }")
    (change,) = diff(cwd=repository.root).changes
    assert [f.kind for f in change.findings] == ["empty"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_very_many_goldens_are_kept_packed_and_reported_alike(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    for i in range(20):
        repository.write(golden_path(f"case{i}"), golden_text(curves(i)))
    repository.commit()
    for i in range(20):
        repository.write(golden_path(f"case{i}"), golden_text(curves(i + 100), stop=13 if i % 5 == 0 else None))
    plain = diff(cwd=repository.root)
    monkeypatch.setattr(workers, "_MANY", 1)
    packed = diff(cwd=repository.root, options=DiffOptions(jobs=jobs))
    assert [type(change.metrics) for change in packed.changes] == [PackedRows] * 20
    assert packed.to_json() == plain.to_json()
    assert list(text.lines(packed)) == list(text.lines(plain))
    assert packed.changes[3].metrics[0].metric == plain.changes[3].metrics[0].metric
