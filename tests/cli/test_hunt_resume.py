from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from factories.commands import karat_here
from factories.hunts import ran, stepped, values_hunt
from karat.hunts.journal import Journal

JOURNAL = Path(".karat") / "hunt" / "hunt.hunt"
LEVELS = stepped(20, (6, 95.0), (14, 85.0))


def culprits(folder: Path, *words: str) -> list[tuple[str, str]]:
    document = json.loads(karat_here("hunt", *words, "--json", "-", cwd=folder).out)
    assert document["state"] == "done"
    return [(c["change"]["old"]["id"], c["change"]["new"]["id"]) for c in document["culprits"]]


def attempts(folder: Path) -> list[tuple[str, int]]:
    path = folder / JOURNAL
    if not path.exists() or path.stat().st_size == 0:
        return []
    with Journal(path) as journal:
        return [(e.point, e.number) for e in journal.attempts()]


@pytest.mark.slow
def test_killed_again_and_again_it_comes_to_the_same_answer(tmp_path: Path) -> None:
    values_hunt(tmp_path / "whole", LEVELS)
    expected = culprits(tmp_path / "whole", "run")
    folder = tmp_path / "killed"
    values_hunt(folder, LEVELS)
    rng = random.Random(7)
    verb, before, kills = "run", attempts(folder), 0
    for more in (0, 1, 4, 7):
        at_work = subprocess.Popen(
            [sys.executable, "-m", "karat", "hunt", verb, "-q"], cwd=folder, stderr=subprocess.PIPE
        )
        wanted = len(ran(folder)) + more
        while at_work.poll() is None and (len(ran(folder)) < wanted or not (folder / JOURNAL).exists()):
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.05))
        at_work.kill()
        at_work.communicate()
        kills += 1
        if (folder / JOURNAL).stat().st_size and not is_empty(folder):
            after = attempts(folder)
            assert after[: len(before)] == before
            before, verb = after, "resume"
    assert culprits(folder, verb) == expected
    done = attempts(folder)
    assert done[: len(before)] == before, "what was in the journal stays there"
    assert len(set(done)) == len(done)
    assert len(done) <= len(ran(folder)) <= len(done) + kills, "only runs in flight are run again"


def is_empty(folder: Path) -> bool:
    from karat.hunts import journal

    return journal.is_empty(folder / JOURNAL)


def test_killed_while_the_journal_is_made_the_hunt_can_be_run(tmp_path: Path) -> None:
    values_hunt(tmp_path, stepped(3))
    (tmp_path / JOURNAL).parent.mkdir(parents=True)
    (tmp_path / JOURNAL).touch()
    assert karat_here("hunt", "run", "-q", cwd=tmp_path).code == 0


@pytest.mark.slow
def test_a_hunt_that_is_done_says_it_again(tmp_path: Path) -> None:
    values_hunt(tmp_path, stepped(6, (3, 90.0)))
    assert karat_here("hunt", "-q", cwd=tmp_path).code == 1
    count = len(ran(tmp_path))
    result = karat_here("hunt", "resume", cwd=tmp_path)
    assert (result.code, len(ran(tmp_path))) == (1, count)
    assert result.out.startswith("hunt: 1 regression\n")


@pytest.mark.slow
def test_what_was_said_when_it_began_holds(tmp_path: Path) -> None:
    values_hunt(tmp_path, LEVELS)
    assert karat_here("hunt", "run", "--strategy", "sweep", "--max-runs", "5", "-q", cwd=tmp_path).code == 3
    assert karat_here("hunt", "resume", "-q", cwd=tmp_path).code == 3, "the budget still is spent"
    assert ran(tmp_path) == list(LEVELS)[:5]
    assert karat_here("hunt", "resume", "--max-runs", "9", "-q", cwd=tmp_path).code in {1, 3}
    assert ran(tmp_path) == list(LEVELS)[:9], "still a sweep"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{value}", "{value} --fast", "probe.command"),
        ('"v000", ', "", "values.list"),
        ("([0-9.]+)", "([0-9]+)", "probe.metrics"),
    ],
)
def test_another_hunt_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    file = values_hunt(tmp_path, LEVELS)
    karat_here("hunt", "run", "--max-runs", "2", "-q", cwd=tmp_path)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(old, new), encoding="utf-8")
    result = karat_here("hunt", "resume", cwd=tmp_path)
    assert (result.code, f"other values of {said}" in result.err) == (2, True)
    assert "--fresh" in result.err


def test_the_search_and_the_engine_may_have_changed(tmp_path: Path) -> None:
    file = values_hunt(tmp_path, LEVELS)
    karat_here("hunt", "run", "--max-runs", "2", "-q", cwd=tmp_path)
    text = file.read_text(encoding="utf-8")
    file.write_text(f"{text}\n[search]\nmax_runs = 9\n\n[engine]\nslots = 2\n", encoding="utf-8")
    assert karat_here("hunt", "resume", "--max-runs", "4", "-q", cwd=tmp_path).code in {1, 3}
    assert len(ran(tmp_path)) == 4


def test_a_folder_that_has_moved_goes_on(tmp_path: Path) -> None:
    values_hunt(tmp_path / "here", LEVELS)
    karat_here("hunt", "run", "--max-runs", "3", "-q", cwd=tmp_path / "here")
    there = (tmp_path / "here").rename(tmp_path / "dort drüben")
    assert karat_here("hunt", "resume", "--max-runs", "5", "-q", cwd=there).code in {1, 3}
    assert len(ran(there)) == 5


def test_without_a_hunt_there_is_nothing_to_resume(tmp_path: Path) -> None:
    result = karat_here("hunt", "resume", cwd=tmp_path)
    assert (result.code, "found none" in result.err) == (3, True)
    assert result.err.endswith("next: karat hunt run\n")
    values_hunt(tmp_path, stepped(3))
    (tmp_path / "hunt.toml").rename(tmp_path / "other.toml")
    assert karat_here("hunt", "run", "other.toml", "--max-runs", "1", "-q", cwd=tmp_path).code == 3
    assert karat_here("hunt", "resume", "other.toml", "--max-runs", "9", "-q", cwd=tmp_path).code == 0
    (tmp_path / "other.toml").unlink()
    gone = karat_here("hunt", "resume", ".karat/hunt/other.hunt", cwd=tmp_path)
    assert (gone.code, "found no such file" in gone.err) == (2, True)
