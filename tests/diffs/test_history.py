"""Moves of earlier refreshes, from real repositories."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from factories.commands import karat_here
from factories.refreshed import ONE, TWO, months, noisy, refreshed
from factories.repositories import Repository, curves, golden_path, golden_text
from karat.api import diff, diff_options
from karat.compare.change import MetricChange
from karat.compare.history import EarlierMoves
from karat.config import load
from karat.diffs.history import KeptHistory, kept_history
from karat.diffs.result import Diff
from karat.findings import UsageError
from karat.goldens.paths import DEFAULT_GLOBS, PathFilter
from karat.system import git

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path) -> Repository:
    """Twelve refreshes by noise, and one in the work tree that moves the loss a hundred times as far."""
    repository = refreshed(tmp_path / "p", months(12))
    repository.write(ONE, golden_text(noisy(99, loss=2e-3)))
    return repository


def row(found: Diff, metric: str = "lm loss", path: str = ONE) -> MetricChange:
    (change,) = (change for change in found.changes if change.path == path)
    return next(row for row in change.metrics if row.metric == metric)


def held(found: Diff, metric: str = "lm loss", path: str = ONE) -> EarlierMoves:
    history = row(found, metric, path).history
    assert history is not None
    return history


def kept_file(repository: Repository) -> Path:
    (file,) = (repository.root / ".git/karat/history").iterdir()
    return file


def test_a_move_is_held_against_the_goldens_own_past(project: Repository) -> None:
    found = diff(cwd=project.root, history=True)
    past = held(found)
    assert (past.own, past.compared_with, past.larger_than, past.pooled) == (12, 12, 12, None)
    assert past.unusual
    assert past.typical == pytest.approx(2e-5, rel=0.5)
    assert not held(found, "iteration-time").unusual
    assert row(found, "mem-allocated-bytes").history is None, "it did not move"
    assert found.history == "held against 14 earlier updates of goldens in 13 commits"


def test_every_report_says_it(project: Repository) -> None:
    said = "larger than all 12 earlier moves (typically "
    shown = karat_here("diff", "--history", "--html", "p.html", "--markdown", "p.md", cwd=project.root)
    assert "history: 1 of 2 moves larger than earlier refreshes made, 1 as usual; held against 14" in shown.out
    page, markdown = (project.root / "p.html").read_text(), (project.root / "p.md").read_text()
    assert said in page
    assert said in markdown
    summary = karat_here("summary", cwd=project.root).out
    assert "## Against earlier refreshes" in summary
    assert said in summary
    found = json.loads(karat_here("diff", "--json", "-", cwd=project.root).out)
    (finding,) = (f for f in found["files"][0]["findings"] if f["metric"] == "lm loss" and f["kind"] == "value-drift")
    assert said in finding["message"]
    (metric,) = (m for m in found["files"][0]["metrics"] if m["metric"] == "lm loss")
    assert metric["history"]["unusual"] is True
    assert metric["history"]["sentence"] in finding["message"]


def test_the_verdict_does_not_depend_on_it(project: Repository) -> None:
    without, with_it = diff(cwd=project.root, history=False), diff(cwd=project.root, history=True)
    assert [(c.path, c.verdict, c.severity) for c in without.changes] == [
        (c.path, c.verdict, c.severity) for c in with_it.changes
    ]
    assert without.history == ""


def test_nothing_is_read_until_somebody_asks_and_then_it_is_used(project: Repository) -> None:
    assert diff(cwd=project.root).history == ""
    assert not (project.root / ".git/karat").exists()
    diff(cwd=project.root, history=True)
    assert held(diff(cwd=project.root)).own == 12
    assert diff(cwd=project.root, history=False).history == ""
    assert project.git("status", "--porcelain").split() == ["M", ONE], "the cache is no file of the work tree"


def test_karat_toml_asks_too(project: Repository) -> None:
    project.write("karat.toml", 'preset = "megatron-lm"\nhistory = true\n')
    assert held(diff(cwd=project.root)).own == 12
    project.write("karat.toml", 'history = "yes"\n')
    with pytest.raises(UsageError, match="history must be true or false, found 'yes'"):
        diff(cwd=project.root)


def test_too_few_are_said_to_be_and_others_are_named(project: Repository) -> None:
    project.write(TWO, golden_text(noisy(5)))
    past = held(diff(cwd=project.root, history=True), path=TWO)
    assert (past.own, past.compared_with) == (2, 14)
    assert past.pooled == "lm loss on dgx_h100 in all goldens"
    new = golden_path("new", "dgx_gb200")
    project.write(new, golden_text(noisy(1)))
    project.commit()
    project.write(new, golden_text(noisy(2)))
    lonely = held(diff(cwd=project.root), path=new)
    assert (lonely.own, lonely.compared_with) == (0, 0)
    assert "too few to tell" in lonely.sentence


def test_only_what_came_before_the_old_side_counts(project: Repository) -> None:
    assert held(diff("HEAD~3", "HEAD~2", cwd=project.root, history=True)).own == 9
    assert held(diff(cwd=project.root)).own == 12


@pytest.mark.parametrize("bad", ["truncated", "nan", "unreadable", "empty"])
def test_a_bad_refresh_and_its_repair_are_left_out(tmp_path: Path, bad: str) -> None:
    texts = {
        "truncated": golden_text(curves(1), stop=13),
        "nan": golden_text({**curves(1), "lm loss": curves(1)["lm loss"] * float("nan")}),
        "unreadable": "{",
        "empty": "",
    }
    repository = refreshed(tmp_path / "p", [*months(10), {ONE: texts[bad]}, {ONE: golden_text(noisy(20))}])
    repository.write(ONE, golden_text(noisy(30)))
    past = held(diff(cwd=repository.root, history=True))
    assert past.own == 10
    assert past.typical is not None
    assert past.typical < 1e-4


def test_new_commits_only_add(project: Repository) -> None:
    diff(cwd=project.root, history=True)
    kept = msgspec.msgpack.decode(kept_file(project).read_bytes(), type=KeptHistory)
    for refresh in kept.refreshes:
        for golden in refresh.goldens:
            if golden.sizes:
                golden.sizes["lm loss"] = 0.5  # what nobody would measure: it stays where nothing is measured again
    kept_file(project).write_bytes(msgspec.msgpack.encode(kept))
    project.commit("refresh")
    project.write(ONE, golden_text(noisy(7)))
    options = diff_options(load(project.root), history=True)
    found = kept_history(project.root, git.root_and_head(project.root)[1], options, compare=True)
    sizes = sorted(found.moves()[ONE]["lm loss"])
    assert len(sizes) == 13
    assert sizes[1:] == [0.5] * 12
    assert sizes[0] < 0.01


def test_commits_without_goldens_are_not_looked_at_again(project: Repository) -> None:
    diff(cwd=project.root, history=True)
    project.git("stash", "--quiet")
    project.write("code.py", "")
    head = project.commit("code")
    diff(cwd=project.root)
    assert msgspec.msgpack.decode(kept_file(project).read_bytes(), type=KeptHistory).tip == head


def test_a_look_back_forgets_nothing(project: Repository) -> None:
    diff(cwd=project.root, history=True)
    before = kept_file(project).read_bytes()
    diff("HEAD~5", "HEAD~4", cwd=project.root)
    assert kept_file(project).read_bytes() == before


def _foreign(kept: KeptHistory, how: str) -> bytes:
    if how == "a tip that is an option":
        kept.tip = "--output=/tmp/x"
    elif how == "a day that never comes":
        kept.refreshes[0].seconds = 2**63
    elif how == "another schema":
        kept.schema = "karat.history/1"
    return msgspec.msgpack.encode(kept)


@pytest.mark.parametrize("how", ["a tip that is an option", "a day that never comes", "another schema"])
def test_a_foreign_cache_is_made_anew(project: Repository, how: str) -> None:
    expected = held(diff(cwd=project.root, history=True))
    file = kept_file(project)
    file.write_bytes(_foreign(msgspec.msgpack.decode(file.read_bytes(), type=KeptHistory), how))
    assert held(diff(cwd=project.root)) == expected
    assert msgspec.msgpack.decode(file.read_bytes(), type=KeptHistory).schema == "karat.history/2"


@pytest.mark.parametrize(
    "data", [b"", b"\xff" * 50, b"\xdd\xff\xff\xff\xff", b"\x95\xa1x\xa0\x90\x90\x90", b"\x91" * 9000]
)
def test_a_damaged_cache_is_made_anew(project: Repository, data: bytes) -> None:
    expected = held(diff(cwd=project.root, history=True))
    kept_file(project).write_bytes(data)
    assert held(diff(cwd=project.root)) == expected


def test_odd_sizes_in_a_cache_are_not_believed(project: Repository) -> None:
    diff(cwd=project.root, history=True)
    kept = msgspec.msgpack.decode(kept_file(project).read_bytes(), type=KeptHistory)
    replaced = [golden for refresh in kept.refreshes for golden in refresh.goldens if golden.sizes]
    for golden, odd in zip(replaced, (float("nan"), float("inf"), -1.0), strict=False):
        golden.sizes = {"lm loss": odd}
    kept_file(project).write_bytes(msgspec.msgpack.encode(kept))
    assert held(diff(cwd=project.root)).own == 9


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(project: Repository) -> None:
    (project.root / ".git/karat").write_text("in the way")
    assert held(diff(cwd=project.root, history=True)).own == 12


def test_branches_have_their_own_past(project: Repository) -> None:
    project.git("stash", "--quiet")
    diff("HEAD", "HEAD", cwd=project.root, history=True)
    project.git("checkout", "--quiet", "-b", "side", "HEAD~6")
    for seed in (40, 41):
        project.write(ONE, golden_text(noisy(seed)))
        project.commit()
    project.write(ONE, golden_text(noisy(42)))
    assert held(diff(cwd=project.root)).own == 8
    project.git("checkout", "--quiet", "--force", "main")
    project.write(ONE, golden_text(noisy(42)))
    assert held(diff(cwd=project.root)).own == 12


def test_a_tip_that_was_rewritten_away(project: Repository) -> None:
    diff(cwd=project.root, history=True)
    project.git("reset", "--hard", "--quiet", "HEAD~2")
    project.git("reflog", "expire", "--expire=now", "--all")
    project.git("gc", "--quiet", "--prune=now")
    project.write(ONE, golden_text(noisy(42)))
    assert held(diff(cwd=project.root)).own == 10


@pytest.mark.parametrize("date", ["", "banana +0000", "-5 +0000", "99999999999999999999999 +0000"])
def test_a_commit_may_claim_any_date(project: Repository, date: str) -> None:
    tree, parent = project.git("rev-parse", "HEAD~1^{tree}").strip(), project.git("rev-parse", "HEAD").strip()
    odd = f"tree {tree}\nparent {parent}\nauthor t <t@example.invalid> {date}\ncommitter t <t@example.invalid> {date}\n\nm\n"
    words = ["git", "hash-object", "-t", "commit", "-w", "--stdin", "--literally"]
    made = subprocess.run(words, cwd=project.root, input=odd.encode(), check=True, capture_output=True).stdout
    project.git("reset", "--quiet", "--soft", made.decode().strip())
    assert held(diff(cwd=project.root, history=True)).own == 13
    assert held(diff(cwd=project.root)).own == 13
    assert karat_here("audit", "--quiet", cwd=project.root).code == 0


def test_a_merge_does_not_count_twice(project: Repository) -> None:
    project.git("checkout", "--quiet", "--force", "-b", "side")
    project.write(ONE, golden_text(noisy(50)))
    project.commit()
    diff(cwd=project.root, history=True)
    project.git("checkout", "--quiet", "main")
    project.git("merge", "--quiet", "--no-ff", "--message=m", "side")
    project.write(ONE, golden_text(noisy(51)))
    assert held(diff(cwd=project.root)).own == 13


def test_a_shallow_clone_says_so(project: Repository, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--depth=4", f"file://{project.root}", str(clone)], check=True)
    (clone / ONE).write_text(golden_text(noisy(9)))
    found = diff(cwd=clone, history=True)
    assert held(found).own == 3
    assert "the clone is shallow, so its history is cut (git fetch --unshallow brings the rest)" in found.history


def test_versions_that_are_not_here_are_counted(project: Repository, tmp_path: Path) -> None:
    project.git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    words = ["git", "clone", "--quiet", "--filter=blob:none", f"file://{project.root}", str(clone)]
    subprocess.run(words, check=True)
    (clone / ONE).write_text(golden_text(noisy(9)))
    found = diff(cwd=clone, history=True)
    assert "the history cannot be read: " in found.history
    assert "in a partial clone, git fetch --refetch brings what is missing" in found.history
    assert held(found).own == 0
    subprocess.run(["git", "fetch", "--quiet", "--refetch", "--no-filter"], cwd=clone, check=True)
    assert held(diff(cwd=clone, history=True)).own == 12


def test_a_damaged_repository_loses_only_what_is_damaged(project: Repository) -> None:
    lost = project.git("rev-parse", f"HEAD~5:{ONE}").strip()
    _remove_object(project, lost)
    found = diff(cwd=project.root, history=True)
    assert "2 earlier versions not in this clone" in found.history
    assert held(found).own == 10


def _remove_object(repository: Repository, oid: str) -> None:
    """Every object loose, and one of them gone."""
    for pack in (repository.root / ".git/objects/pack").glob("*.pack"):
        aside = pack.rename(repository.root.parent / pack.name)
        with aside.open("rb") as file:
            subprocess.run(["git", "unpack-objects", "-q"], cwd=repository.root, stdin=file, check=True)
    (repository.root / ".git/objects" / oid[:2] / oid[2:]).unlink()


def test_work_trees_share_what_is_kept(project: Repository, tmp_path: Path) -> None:
    diff(cwd=project.root, history=True)
    project.git("worktree", "add", "--quiet", str(tmp_path / "other"))
    (tmp_path / "other" / ONE).write_text(golden_text(noisy(9)))
    assert held(diff(cwd=tmp_path / "other")).own == 12


def test_git_is_asked_for_every_path_that_is_a_golden(tmp_path: Path) -> None:
    globs = (*DEFAULT_GLOBS, "a[b]/*.json", "deep**.csv", "x/y**/z.txt", "plain.json")
    names = [
        "golden_values.json", "t/golden_values_x.json", "a/my_golden_1.csv", "golden/a/b.txt", "x/goldens/b.jsonl",
        "q/ci_expected_accuracy/rocm/t.csv", "a/expected_ci_perf.csv", "a[b]/c.json", "deep/er/x.csv", "x/yy/u/z.txt",
        "plain.json", "x/expected_results.csv",
    ]  # fmt: skip
    is_golden = PathFilter(globs)
    assert all(map(is_golden, names))
    repository = refreshed(tmp_path / "p", [dict.fromkeys([*names, "readme.md"], "{}")])
    options = diff_options(load(repository.root))
    kept = kept_history(
        repository.root, git.root_and_head(repository.root)[1], replace(options, globs=globs), compare=False
    )
    assert sorted(golden.path for golden in kept.replaced()) == sorted(names)


def test_check_says_it_of_what_fails(project: Repository) -> None:
    project.write("out/worse.json", golden_text({**curves(1), "lm loss": curves(1)["lm loss"] * 1.2}))
    words = ("check", "out/worse.json", "--golden", ONE)
    project.git("checkout", "--quiet", ONE)
    plain = karat_here(*words, cwd=project.root)
    assert "earlier moves" not in plain.out
    shown = karat_here(*words, "--history", cwd=project.root)
    assert shown.code == plain.code == 1
    assert "before larger than all 12 earlier moves (typically " in shown.out
    found = json.loads(karat_here(*words, "--json", "-", cwd=project.root).out)
    by_name = {metric["metric"]: metric["history"] for metric in found["checks"][0]["metrics"]}
    assert by_name["lm loss"]["own"] == 12
    assert by_name["iteration-time"] is None
