"""Builds of real repositories: one that is never rebuilt, healthy ones, and commits whose built files are the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from factories.hunts import commits_hunt, dated_commits, hunted
from factories.repositories import Repository
from karat.changepoints.series import Outcome
from karat.findings import exit_code
from karat.hunts.model import Attempt
from karat.hunts.report.assemble import findings_of, never_rebuilt
from karat.hunts.report.sentences import conclusion

BOTH = "echo speed: $(( $(cat a/built) + $(cat b/built) ))"
HEALTHY = "for r in a b; do cp $r/speed $r/built; done"
STALE = "cp a/speed a/built; [ -e b/built ] || cp b/speed b/built"


def two(tmp_path: Path, build: str, more: str = "") -> Path:
    """Two repositories of a dozen commits each; `a` is slower from its 4th on, `b` from its 10th."""
    a, b = Repository(tmp_path / "a"), Repository(tmp_path / "b")
    first = dated_commits(a, [100] * 3 + [90] * 9)
    second = dated_commits(b, [100] * 9 + [80] * 3)
    ends = f'good = {{ a = "{first[0]}", b = "{second[0]}" }}\nbad = {{ a = "{first[-1]}", b = "{second[-1]}" }}'
    more += f'\n[commits]\n{ends}\nbuild = ["sh", "-c", "{build}"]\n'
    file = commits_hunt(tmp_path / "hunt", {"a": a, "b": b}, BOTH, more, ["commits"])
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("timeout =", 'hash_files = ["*/built"]\ntimeout ='), encoding="utf-8")
    return file


@pytest.mark.slow
def test_a_repository_that_is_never_rebuilt_fails_the_hunt_and_is_said_first(tmp_path: Path) -> None:
    file = two(tmp_path, STALE, "\n[search]\ngrid = 2\n")
    command = [sys.executable, "-m", "karat", "hunt", "run", str(file)]
    done = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    first, second, *_ = done.stdout.splitlines()
    assert first == "two repositories: b was never rebuilt; 1 regression"
    assert second.startswith("b moved through ")
    assert "its built files never changed" in second


@pytest.mark.slow
def test_healthy_builds_are_not_suspected_and_equal_ones_are_measured_once(tmp_path: Path) -> None:
    file = two(tmp_path, HEALTHY, "\n[search]\ngrid = 2\n")
    report = hunted(file)
    assert len(report.culprits) == 2
    assert not report.never_rebuilt
    assert [f.kind for f in findings_of(report)] == ["level-regressed"] * 2
    tried = [point for point in report.stages[0].points if point.attempts]
    # Twenty-three commits are three different builds; each is run as often as it takes, not as often as it is met.
    searched = [a for p in tried for a in p.attempts if not a.shared_with and "confirm" not in a.why]
    assert len(tried) > 12
    assert len(searched) <= 10


@pytest.mark.slow
def test_one_repository_that_is_never_rebuilt(tmp_path: Path) -> None:
    lib = Repository(tmp_path / "lib")
    ids = dated_commits(lib, [100] * 3 + [90] * 9)
    more = f'\n[commits]\ngood = {{ lib = "{ids[0]}" }}\nbuild = ["sh", "-c", "[ -e built ] || cp speed built"]\n'
    file = commits_hunt(tmp_path / "hunt", {"lib": lib}, "echo speed: $(cat built)", more, ["commits"])
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("timeout =", 'hash_files = ["lib/built"]\ntimeout ='), encoding="utf-8")
    report = hunted(file)
    assert conclusion(report) == "two repositories: lib was never rebuilt; nothing could be compared"
    assert int(exit_code(findings_of(report))) == 1


@pytest.mark.slow
def test_a_build_without_any_proof_says_so(tmp_path: Path) -> None:
    file = two(tmp_path, HEALTHY)
    file.write_text(file.read_text(encoding="utf-8").replace('hash_files = ["*/built"]\n', ""), encoding="utf-8")
    report = hunted(file)
    assert any("probe.hash_files" in note for note in report.notes)


@pytest.mark.slow
def test_what_identify_knows_of_an_old_build_is_no_result_of_the_new_commit(tmp_path: Path) -> None:
    lib = Repository(tmp_path / "lib")
    ids = dated_commits(lib, [100] * 4)
    build = "[ -e built ] || git rev-parse HEAD > built"
    more = f'\n[commits]\ngood = {{ lib = "{ids[0]}" }}\nbuild = ["sh", "-c", "{build}"]\n'
    file = commits_hunt(tmp_path / "hunt", {"lib": lib}, "echo speed: 100", more, ["commits"])
    said = 'identify = ["sh", "-c", "echo commit.lib=$(cat built)"]\ntimeout ='
    file.write_text(file.read_text(encoding="utf-8").replace("timeout =", said), encoding="utf-8")
    last = hunted(file).stages[0].points[-1]
    assert last.outcome is Outcome.BROKEN
    assert "nothing was rebuilt" in last.attempts[-1].note


def built(a: int, b: int, /, files: str, **own: str) -> Attempt:
    identity = {"commit.a": f"{a:07x}", "commit.b": f"{b:07x}", "files.sha256": files}
    identity |= {f"files.{name}": each for name, each in own.items()}
    return Attempt(stage="0", point=f"{a} {b}", number=1, outcome=Outcome.OK, identity=identity)


def test_moves_of_one_repository_alone_tell() -> None:
    alone = [built(a, 0, "x") for a in range(6)]
    assert never_rebuilt(alone) == {"a": 5}
    assert never_rebuilt([*alone, built(6, 0, "y")]) == {}, "one build of its own is proof"
    # Where the other moved as well, nobody knows whose build it is.
    assert never_rebuilt([*alone, built(6, 1, "y")]) == {"a": 5}
    assert never_rebuilt([built(a, a, f"{a}") for a in range(6)]) == {}


def test_files_in_its_own_folder_tell_also_where_all_move_together() -> None:
    together = [built(n, n, f"{n}", a=f"{n}", b="same") for n in range(6)]
    assert never_rebuilt(together) == {"b": 5}
    assert never_rebuilt([*together, built(6, 7, "7", a="7", b="other")]) == {}


def test_a_few_commits_that_build_nothing_are_no_evidence() -> None:
    assert never_rebuilt([built(a, 0, "x") for a in range(4)]) == {}
