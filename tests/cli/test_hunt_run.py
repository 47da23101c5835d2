from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from factories.commands import karat, karat_here
from factories.hunts import ran, stepped, values_hunt

JOURNAL = Path(".karat") / "hunt" / "hunt.hunt"


def schema(name: str, cwd: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(karat_here("schema", name, cwd=cwd).out)
    return found


@pytest.mark.slow
def test_a_hunt_prints_its_answer_and_every_attempt_as_it_comes(tmp_path: Path) -> None:
    folder = tmp_path / "mein Prüfstand"
    values_hunt(folder, stepped(12, (5, 90.0)))
    result = karat("hunt", cwd=folder)
    assert result.code == 1
    assert result.out.startswith("hunt: 1 regression\n")
    first, *attempts = result.err.splitlines()
    assert first == "values: 12 points (v000 … v011)"
    assert attempts[0].startswith("[1/≈")
    assert "v000 99.95 MLUPS" in attempts[0]
    assert result.err.splitlines()[-1] == f"next: karat hunt show v005 --stage 0 --journal {JOURNAL}"
    assert (folder / JOURNAL).is_file()


@pytest.mark.slow
def test_reports_go_where_they_are_wanted(tmp_path: Path) -> None:
    values_hunt(tmp_path, stepped(8))
    words = ("--json", "-", "--html", "hunt.html", "--markdown", "issue.md", "-q")
    result = karat_here("hunt", "run", *words, cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    document = json.loads(result.out)
    jsonschema.validate(document, schema("karat.hunt/1", tmp_path))
    assert (document["state"], document["culprits"]) == ("done", [])
    assert "<html" in (tmp_path / "hunt.html").read_text(encoding="utf-8")
    assert (tmp_path / "issue.md").stat().st_size
    refused = karat_here("hunt", "run", "--fresh", "--json", "-", "--html", "-", cwd=tmp_path)
    assert (refused.code, "at most one report on stdout" in refused.err) == (2, True)


def test_a_dry_run_runs_nothing(tmp_path: Path) -> None:
    file = values_hunt(tmp_path, stepped(5))
    file.write_text('skip = ["v002"]\n' + file.read_text(encoding="utf-8"), encoding="utf-8")
    result = karat_here("hunt", "run", "--dry-run", cwd=tmp_path)
    assert result.code == 0, result.err
    assert (
        "points: 5 at the first stage (v000 … v004)\n  not available: v002: skipped, as hunt.toml says\n" in result.out
    )
    assert "first: v000 (end point): sh probe.sh v000\n" in result.out
    assert "a sweep takes 4\n" in result.out
    assert len(result.out.splitlines()) <= 10
    planned = karat_here("hunt", "run", "--dry-run", "--json", "-", cwd=tmp_path)
    jsonschema.validate(json.loads(planned.out), schema("karat.hunt-plan/1", tmp_path))
    assert ran(tmp_path) == []
    assert not (tmp_path / ".karat").exists()


@pytest.mark.slow
def test_a_journal_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    values_hunt(tmp_path, stepped(6, (3, 90.0)))
    assert karat_here("hunt", "run", "--max-runs", "1", "-q", cwd=tmp_path).code == 3
    unfinished = karat_here("hunt", "run", cwd=tmp_path)
    assert unfinished.code == 2
    assert "found a hunt that is not finished with 1 run;" in unfinished.err
    assert unfinished.err.endswith(f"next: karat hunt resume {JOURNAL} --max-runs 2\n")
    assert karat_here("hunt", "resume", "--max-runs", "99", "-q", cwd=tmp_path).code == 1
    finished = karat_here("hunt", "run", cwd=tmp_path)
    assert finished.code == 2
    assert finished.err.endswith(f"next: karat hunt report {JOURNAL}\n")
    before = (tmp_path / JOURNAL).read_bytes()
    assert karat_here("hunt", "run", "--fresh", "--strategy", "sweep", "-q", cwd=tmp_path).code == 1
    assert (tmp_path / f"{JOURNAL}.1").read_bytes() == before


def test_a_hunt_that_could_not_begin_is_in_nobody_s_way(tmp_path: Path) -> None:
    file = values_hunt(tmp_path, stepped(3))
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("list = [", 'file = "lacking"\nlist = ['), encoding="utf-8")
    assert karat_here("hunt", "run", cwd=tmp_path).code == 2
    file.write_text(text, encoding="utf-8")
    assert karat_here("hunt", "run", "-q", cwd=tmp_path).code == 0


@pytest.mark.slow
def test_the_command_line_overrules_hunt_toml(tmp_path: Path) -> None:
    values_hunt(tmp_path, stepped(9, (4, 90.0)))
    words = ("--strategy", "sweep", "-j", "2", "--confidence", "0.95", "--journal", "other.hunt")
    result = karat_here("hunt", "run", *words, "--json", "-", cwd=tmp_path)
    document = json.loads(result.out)
    assert set(ran(tmp_path)) == set(stepped(9))
    where = {a["where"][-1] for p in document["stages"][0]["points"] for a in p["attempts"]}
    assert where == {"0", "1"}
    assert (tmp_path / "other.hunt").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere.toml",), "expected a hunt in nowhere.toml, found no such file"),
        (("--metric", "sped"), "--metric: expected one of speed, found 'sped'; did you mean 'speed'?"),
        (("--stage", "commits"), "--stage: expected one of 'values', found 'commits'"),
        (("--strategy", "guess"), "'guess' is not one of"),
    ],
)
def test_what_is_mistyped_is_2(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    values_hunt(tmp_path, stepped(3))
    result = karat_here("hunt", "run", *words, cwd=tmp_path)
    assert (result.code, said in result.err, "next: " in result.err) == (2, True, True)
    assert ran(tmp_path) == []


@pytest.mark.parametrize(
    ("levels", "advice"),
    [
        (dict.fromkeys(stepped(3), "skip"), "karat hunt show v000 --log"),
        (dict.fromkeys(stepped(3), "crash"), "karat hunt show v000 --log"),
        (stepped(1), "karat hunt run --dry-run"),
    ],
)
def test_where_nothing_was_compared_nothing_is_verified(
    tmp_path: Path, levels: dict[str, str | float], advice: str
) -> None:
    values_hunt(tmp_path, levels)
    result = karat_here("hunt", cwd=tmp_path)
    assert (result.code, result.out.splitlines()[0]) == (3, "hunt: nothing could be compared")
    assert result.err.splitlines()[-1].startswith(f"next: {advice}")


def test_a_journal_that_is_none_is_cannot_verify(tmp_path: Path) -> None:
    values_hunt(tmp_path, stepped(3))
    journal = tmp_path / JOURNAL
    journal.parent.mkdir(parents=True)
    journal.write_bytes(os.urandom(5000))
    for words in (("run",), ("resume",), ("status",), ("show", "v000"), ("report",)):
        result = karat_here("hunt", *words, cwd=tmp_path)
        assert (result.code, "not a database" in result.err) == (3, True), words
    assert karat_here("hunt", "run", "--fresh", "-q", cwd=tmp_path).code == 0
    with sqlite3.connect(journal) as db:
        db.execute("PRAGMA user_version = 2")
    db.close()
    for words in (("resume",), ("status",), ("show", "v000"), ("report",)):
        result = karat_here("hunt", *words, cwd=tmp_path)
        assert (result.code, "a newer karat made it" in result.err) == (3, True), words


def test_a_folder_that_cannot_be_written_is_cannot_verify(tmp_path: Path) -> None:
    values_hunt(tmp_path, stepped(3))
    (tmp_path / ".karat").write_text("in the way")  # even root cannot make a folder of it
    result = karat_here("hunt", cwd=tmp_path)
    assert result.code == 3
    assert "expected to write the journal" in result.err
    assert "next: ls -ld" in result.err


def test_two_at_once_the_second_is_refused(tmp_path: Path) -> None:
    values_hunt(tmp_path, dict.fromkeys(stepped(4), "slow 20"))
    first = start(tmp_path, "run", "-q")
    try:
        wait_for(lambda: len(ran(tmp_path)) == 1)
        for words in (("run",), ("resume",), ("run", "--fresh")):
            second = karat_here("hunt", *words, cwd=tmp_path)
            assert (second.code, f"process {first.pid} writing it" in second.err) == (2, True), words
            assert f"next: karat hunt status {JOURNAL}" in second.err
        status = json.loads(karat_here("hunt", "status", "--json", "-", cwd=tmp_path).out)
        assert (status["state"], status["process"]) == ("running", first.pid)
        assert [run["point"] for run in status["running"]] == ["v000"]
    finally:
        first.kill()
        first.communicate()
    assert json.loads(karat_here("hunt", "status", "--json", "-", cwd=tmp_path).out)["state"] == "stopped"


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_it_keeps_what_it_measured(tmp_path: Path, sent: signal.Signals) -> None:
    levels = stepped(10, (5, 90.0))
    values_hunt(tmp_path, {**levels, "v009": "slow 30"})
    at_work = start(tmp_path, "run", "--strategy", "sweep")
    wait_for(lambda: len(ran(tmp_path)) == 10)
    at_work.send_signal(sent)
    out, err = at_work.communicate()
    assert at_work.returncode == 130
    assert err.endswith(f"next: karat hunt resume {JOURNAL}\n")
    assert "it was interrupted" in out
    values_hunt(tmp_path, levels)
    assert karat_here("hunt", "resume", "-q", cwd=tmp_path).code == 1
    assert ran(tmp_path)[:11] == [*levels, "v009"], "only what was in flight is run again"


def start(cwd: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "karat", "hunt", *words],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(there: object) -> None:
    assert callable(there)
    until = time.monotonic() + 60
    while not there():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.01)
