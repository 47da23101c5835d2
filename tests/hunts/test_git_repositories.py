from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from conftest import missing
from factories.histories import COMMITS, HOUR, NOON, History, hunting, place, printed, run, run_point
from karat.engines.job import JobResult
from karat.hunts.settings import CheckoutSettings, HuntSettings
from karat.hunts.timelines.git import GitTimeline, open_commits

MAKEFILE = """
all: fast.out same.out
%.out: %.txt
\tsh -c 'cat $< > $@; echo built $@'
"""


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path / "mein Prüfstand")
    made.at(NOON, "root", n="0", Makefile=MAKEFILE, **{"fast.txt": "0", "same.txt": "always"})
    for number in range(1, 5):
        made.at(NOON + number * HOUR, f"c{number}", n=str(number), **{"fast.txt": str(number)})
    return made


def settings_of(history: History, **own: object) -> HuntSettings:
    settings = hunting({"r": history.root})
    return replace(settings, commits=CheckoutSettings(good={"r": "main~4"}, **own))  # type: ignore[arg-type]


def opened(history: History, folder: Path, **own: object) -> GitTimeline:
    return open_commits(settings_of(history, **own), COMMITS, None, place(folder))


def built(result: JobResult) -> list[str]:
    output = next(ran.output.decode() for ran in result.ran if ran.role == "build")
    return [line.split()[-1] for line in output.splitlines() if line.startswith("built")]


@pytest.mark.slow
def test_make_builds_what_changed_and_nothing_else(history: History, tmp_path: Path) -> None:
    if subprocess.run(["make", "--version"], check=False, capture_output=True).returncode:
        missing("make")
    timeline, area = opened(history, tmp_path, build="make"), tmp_path / "slot"
    assert built(run(timeline, 0, area)) == ["fast.out", "same.out"]
    # Forwards, backwards, one after the other within the same second: each has its own build.
    for number in (1, 4, 2, 3, 2, 0, 4):
        result = run(timeline, number, area, "cat", "fast.out")
        assert printed(result) == str(number)
        assert built(result) == ["fast.out"]
    assert built(run(timeline, 4, area)) == []


@pytest.mark.slow
def test_a_build_knows_its_commits_and_may_fail(history: History, tmp_path: Path) -> None:
    timeline = opened(history, tmp_path, build=("sh", "-c", 'echo "$KARAT_COMMIT_R" > commit'))
    result = run(timeline, 2, tmp_path / "slot", "cat", "commit")
    assert printed(result) == timeline.points[2].parts["r"]
    broken = run(opened(history, tmp_path, build="false"), 2, tmp_path / "slot")
    assert (broken.ran[-1].role, broken.ran[-1].exit_code) == ("build", 1)


@pytest.mark.slow
def test_clean_removes_what_is_not_tracked(history: History, tmp_path: Path) -> None:
    area = tmp_path / "slot"
    run(opened(history, tmp_path), 0, area)
    (area / "r" / "left.o").write_text("x")
    run(opened(history, tmp_path), 1, area)
    assert (area / "r" / "left.o").exists()
    run(opened(history, tmp_path, clean=True), 2, area)
    assert not (area / "r" / "left.o").exists()


@pytest.mark.slow
def test_what_lies_in_the_way_gives_way(history: History, tmp_path: Path) -> None:
    history.at(NOON + 9 * HOUR, "a new file", fresh="from git")
    timeline, area = opened(history, tmp_path), tmp_path / "slot"
    run(timeline, 0, area)
    (area / "r" / "fresh").write_text("a build's")
    (area / "r" / "n").unlink()
    (area / "r" / "n").mkdir()
    (area / "r" / "n" / "o").write_text("a folder where a file was")
    last = len(timeline.points) - 1
    assert printed(run(timeline, last, area, "cat", "fresh", "n")) == "from git4"


def test_an_area_within_a_work_tree_of_the_users_leaves_that_alone(history: History, tmp_path: Path) -> None:
    timeline = opened(history, tmp_path)
    theirs = History(tmp_path / "theirs")
    head = theirs.at(NOON, "theirs", n="precious")
    (theirs.root / "n").write_text("and not committed")
    area = theirs.root / ".karat" / "slot"
    # A repository that was damaged is not looked for further up.
    (area / "r").mkdir(parents=True)
    (area / "r" / ".git").mkdir()
    assert printed(run(timeline, 1, area, "cat", "n")) == "1"
    assert (theirs.root / "n").read_text() == "and not committed"
    assert theirs.git("rev-parse", "HEAD").strip() == head
    assert theirs.git("status", "--porcelain", "n").strip() == "M n"


@pytest.mark.slow
def test_variables_of_a_hook_do_not_lead_elsewhere(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = History(tmp_path / "theirs")
    head = theirs.at(NOON, "theirs", n="precious")
    monkeypatch.setenv("GIT_DIR", str(theirs.root / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(theirs.root))
    monkeypatch.setenv("GIT_INDEX_FILE", str(theirs.root / ".git" / "index"))
    timeline = opened(history, tmp_path)
    assert printed(run(timeline, 1, tmp_path / "slot", "cat", "n")) == "1"
    # A probe that asks git hears of the repository that is under test.
    asked = run(timeline, 2, tmp_path / "slot", "git", "rev-parse", "HEAD")
    assert printed(asked) == timeline.points[2].parts["r"]
    monkeypatch.undo()
    assert (theirs.root / "n").read_text() == "precious"
    assert theirs.git("rev-parse", "HEAD").strip() == head
    assert theirs.git("status", "--porcelain").strip() == ""


def test_hooks_and_habits_of_the_user_do_not_run(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (hooks / "post-checkout").chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(
        f"[core]\n\thooksPath = {hooks}\n\tautocrlf = true\n\tfsmonitor = {hooks}/post-checkout\n"
        f"[init]\n\ttemplateDir = {hooks}\n[log]\n\tshowSignature = true\n[color]\n\tui = always\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    # As an alias of git's, or a CI, hands settings on.
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.eol")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "crlf")
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.autocrlf'='true'")
    timeline = opened(history, tmp_path)
    assert printed(run(timeline, 1, tmp_path / "slot", "cat", "Makefile")) == MAKEFILE.strip()
    assert not (tmp_path / "ran").exists()
    assert len(timeline.suspects(*timeline.points[:2])) == 1


@pytest.mark.slow
def test_locks_that_a_killed_git_left_are_no_hindrance(history: History, tmp_path: Path) -> None:
    timeline, area = opened(history, tmp_path), tmp_path / "slot"
    run(timeline, 0, area)
    for name in ("index.lock", "HEAD.lock", "config.lock", "refs/heads/x.lock"):
        (area / "r" / ".git" / name).write_text("")
    assert printed(run(timeline, 3, area, "cat", "n")) == "3"


@pytest.mark.slow
def test_a_checkout_that_is_killed_in_the_middle_heals(tmp_path: Path) -> None:
    wide = History(tmp_path / "wide")
    wide.at(NOON, "root", **{f"f{i}": "0" for i in range(400)})
    wide.at(NOON + HOUR, "next", **{f"f{i}": "1" for i in range(400)})
    settings = replace(hunting({"r": wide.root}), commits=CheckoutSettings(good={"r": "main~1"}))
    timeline, area = open_commits(settings, COMMITS, None, place(tmp_path)), tmp_path / "slot"
    run(timeline, 0, area)
    checkout = next(c for c in timeline.prepare(timeline.points[1]) if "checkout" in c.argv)
    argv = [word.replace("@AREA@", str(area)) for word in checkout.argv]
    changed = area / "r" / "f0"
    process = subprocess.Popen(argv, cwd=area / "r")
    while process.poll() is None:
        # Git replaces a file by removing it first.
        with suppress(FileNotFoundError):
            if changed.read_text() == "1":
                break
    process.kill()
    process.wait()
    for number in (1, 0):
        text = printed(run(timeline, number, area, "sh", "-c", "cat f*"))
        assert text == str(number) * 400


@pytest.mark.slow
def test_a_node_without_the_mirror_fetches_from_the_url(history: History, tmp_path: Path) -> None:
    timeline = opened(history, tmp_path)
    commands = timeline.prepare(timeline.points[2])
    (tmp_path / "work").rename(tmp_path / "elsewhere")
    result = run_point(timeline, timeline.points[2], tmp_path / "slot", "cat", "n")
    assert result.ran[-1].output.decode() == "2"
    failed = [ran.name for ran in result.ran if ran.exit_code]
    assert failed == ["r: borrow"]
    assert len(commands) == len(result.ran) - 1
    fetched = next(ran for ran in result.ran if ran.name == "r: fetch")
    assert not fetched.skipped
    again = run_point(timeline, timeline.points[3], tmp_path / "slot", "cat", "n")
    assert next(ran for ran in again.ran if ran.name == "r: fetch").skipped


@pytest.mark.slow
def test_submodules_follow_their_commit(tmp_path: Path) -> None:
    inner, outer = History(tmp_path / "inner"), History(tmp_path / "outer")
    inner.at(NOON, "inner 0", i="inner 0")
    outer.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../inner", "sub")
    outer.at(NOON + HOUR, "outer 0")
    inner.at(NOON + HOUR, "inner 1", i="inner 1")
    outer.git("-C", "sub", "pull", "--quiet")
    outer.at(NOON + 2 * HOUR, "outer 1")
    settings = replace(hunting({"r": outer.root}, submodules=True), commits=CheckoutSettings(good={"r": "main~1"}))
    timeline, area = open_commits(settings, COMMITS, None, place(tmp_path)), tmp_path / "slot"
    for number in (1, 0, 1):
        assert printed(run(timeline, number, area, "cat", "sub/i")) == f"inner {number}"


@pytest.mark.slow
def test_a_folder_may_become_a_submodule_and_go_again(tmp_path: Path) -> None:
    """What a build left in the folder, and what the submodule leaves, is in nobody's way where builds are clean."""
    inner, outer = History(tmp_path / "inner"), History(tmp_path / "outer")
    inner.at(NOON, "inner", i="inner")
    outer.at(NOON, "a folder", **{"sub/i": "folder"})
    outer.git("rm", "-r", "--quiet", "sub")
    outer.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../inner", "sub")
    outer.at(NOON + HOUR, "a submodule")
    outer.git("rm", "-r", "--quiet", "--force", "sub")
    outer.at(NOON + 2 * HOUR, "neither")
    own = CheckoutSettings(good={"r": "main~2"}, clean=True)
    settings = replace(hunting({"r": outer.root}, submodules=True), commits=own)
    timeline, area = open_commits(settings, COMMITS, None, place(tmp_path)), tmp_path / "slot"
    build = "touch left.o; test ! -d sub || touch sub/left.o; cat sub/i || echo none"
    for number, there in ((0, "folder"), (1, "inner"), (2, "none"), (1, "inner"), (0, "folder")):
        text = printed(run(timeline, number, area, "sh", "-c", f"ls sub | wc -l; {build}"))
        assert text.splitlines()[-1] == there
        assert ("0" if there == "none" else "1") in text.splitlines()


def test_two_hunts_share_a_mirror_at_once(history: History, tmp_path: Path) -> None:
    found: list[int] = []

    def open_one(number: int) -> None:
        timeline = open_commits(settings_of(history), COMMITS, None, place(tmp_path, f"hunt {number}"))
        found.append(len(timeline.points))

    threads = [threading.Thread(target=open_one, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [5] * 6
    assert len(list((tmp_path / "work" / "mirrors").glob("*.git"))) == 1


@pytest.mark.slow
def test_a_hunt_that_is_killed_while_it_clones_is_opened_again(history: History, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from factories.histories import *;"
        "from karat.hunts.timelines.git import open_commits;"
        "from karat.hunts.settings import CheckoutSettings; from msgspec.structs import replace;"
        "s = replace(hunting({'r': sys.argv[1]}), commits=CheckoutSettings(good={'r': 'main~4'}));"
        "print('there', flush=True);"
        "open_commits(s, COMMITS, None, place(Path(sys.argv[2])))"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    for _ in range(3):
        words = [sys.executable, "-c", code, str(history.root), str(tmp_path)]
        process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        process.kill()
        process.wait()
        process.stdout.close()
    assert len(opened(history, tmp_path).points) == 5


@pytest.mark.slow
def test_bytecode_of_one_commit_is_not_taken_for_that_of_another(history: History, tmp_path: Path) -> None:
    """Sources of the same size, written within one second, are the same to Python."""
    for number in range(2):
        history.at(NOON + number * HOUR, f"x {number}", **{"m.py": f"x = {number}\n"})
    timeline = opened(history, tmp_path)
    script = "touch -d @1000000000 m.py; env -u PYTHONDONTWRITEBYTECODE python3 -c 'import m; print(m.x)'"
    last = len(timeline.points) - 1
    assert [printed(run(timeline, n, tmp_path / "slot", "sh", "-c", script)) for n in (last, last - 1, last)] == [
        "1",
        "0",
        "1",
    ]
