"""Budgets of a hunt, for real: runs, time, cost; what is said when one is spent, and how it goes on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from factories.commands import karat_here
from factories.ends import ends
from factories.hunts import ran, stepped, values_hunt

# Thirty times slower from v011 on; the other metric is a coin thrown anew for each run.
NOISY = """
echo "$1" >> ran.txt
n=$(wc -l < ran.txt)
case "$1" in v00?|v010) echo "slow: 5.6$((n % 7))";; *) echo "slow: 161.$((n % 9))";; esac
awk -v n="$n" 'BEGIN { srand(n); rand(); print "coin:", exp(rand() * 3) }'
"""


def two_metrics(folder: Path, more: str = "", order: tuple[str, ...] = ("coin", "slow")) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "probe.sh").write_text(NOISY, encoding="utf-8")
    metrics = "".join(
        f"[[probe.metrics]]\nname = '{name}'\nregex = '{name}: (.*)'\nbetter = 'lower'\n" for name in order
    )
    listed = json.dumps([f"v{n:03d}" for n in range(20)])
    text = (
        f"stages = ['values']\n[probe]\ncommand = 'sh probe.sh {{value}}'\n{metrics}[values]\nlist = {listed}\n{more}"
    )
    (folder / "hunt.toml").write_text(text, encoding="utf-8")


@pytest.mark.slow
def test_a_metric_that_is_all_noise_neither_hides_nor_delays_what_another_shows(tmp_path: Path) -> None:
    two_metrics(tmp_path)
    result = karat_here("hunt", "--json", "-", cwd=tmp_path)
    report = json.loads(result.out)
    changes = {c["metric"]: (c["change"]["old"]["id"], c["change"]["new"]["id"]) for c in report["culprits"]}
    assert changes["slow"] == ("v010", "v011")
    assert (result.code, report["state"]) == (1, "done")
    assert len(ran(tmp_path)) <= 60, "a sweep with three runs each, confirming included"


@pytest.mark.slow
def test_a_metric_that_is_not_settled_is_not_fine(tmp_path: Path) -> None:
    two_metrics(tmp_path, "[search]\nconfirmations = 0\nruns_per_point = 1\n", order=("flat", "coin"))
    plain = (tmp_path / "hunt.toml").read_text(encoding="utf-8")
    (tmp_path / "hunt.toml").write_text(plain.replace("better = 'lower'\n", ""), encoding="utf-8")
    # Changes at every fourth point: more than a single run of each can settle.
    (tmp_path / "probe.sh").write_text(
        "echo flat: 1\necho $1 >> ran.txt\n"
        "awk -v n=$(wc -l < ran.txt) -v at=${1#v} "
        "'BEGIN { srand(n); rand(); print \"coin:\", 1 + int(at / 4) % 2 + rand() / 4 }'\n",
        encoding="utf-8",
    )
    result = karat_here("hunt", "--json", "hunt.json", cwd=tmp_path)
    report = json.loads((tmp_path / "hunt.json").read_text(encoding="utf-8"))
    assert (result.code, report["state"], report["stages"][0]["unsettled"]) == (3, "done", ["coin"])
    assert "not settled" in result.out.splitlines()[0]
    assert "coin is not settled after 13 runs" in result.out
    assert len(ran(tmp_path)) == 13, "its share, since the other metric is settled"


def report_of(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    result = karat_here("hunt", *words, "--json", "-", cwd=folder)
    return result.code, json.loads(result.out)


@pytest.mark.slow
def test_each_change_is_told_the_moment_it_is_sure(tmp_path: Path) -> None:
    values_hunt(tmp_path, stepped(24, (7, 95.0), (18, 90.0)))
    result = karat_here("hunt", cwd=tmp_path)
    lines = result.err.splitlines()
    found = [at for at, line in enumerate(lines) if line.startswith("found: ")]
    assert len(found) == 2
    assert lines[found[0]].startswith("found: regression of speed, last good v0")
    assert lines[found[0]].endswith(f"after {sum(line.startswith('[') for line in lines[: found[0]])} runs")
    confirming = next(at for at, line in enumerate(lines) if line.endswith("confirming"))
    assert found[1] < confirming, "before anything is run again to confirm it"
    _, report = report_of(tmp_path, "report")
    assert [event["message"] for event in report["events"]] == [lines[at] for at in found]
    # A resume says nothing twice.
    assert "found: " not in karat_here("hunt", "resume", cwd=tmp_path).err


@pytest.mark.slow
def test_a_spent_budget_of_runs_says_what_was_found_and_what_was_not_done(tmp_path: Path) -> None:
    values_hunt(tmp_path, stepped(24, (7, 95.0), (18, 90.0)))
    code, report = report_of(tmp_path, "run", "--max-runs", "10")
    assert (code, report["state"], report["runs"]) == (1, "stopped", 10)
    assert report["notes"][0].startswith("The hunt is not finished: the budget of 10 runs is spent.")
    assert report["resume"].endswith("--max-runs 20")
    (undone,) = [note for note in report["notes"] if note.startswith("Not done at values: ")]
    assert "of 24 points not run" in undone
    assert "not pinned down" in undone
    code, report = report_of(tmp_path, "resume", "--max-runs", "999")
    assert (code, report["state"], len(report["culprits"])) == (1, "done", 2)
    assert len(ran(tmp_path)) == report["runs"]


@pytest.mark.slow
def test_a_sweep_that_a_budget_ends_says_what_it_saw(tmp_path: Path) -> None:
    values_hunt(tmp_path, stepped(24, (7, 90.0), (20, 80.0)))
    code, report = report_of(tmp_path, "run", "--strategy", "sweep", "--max-runs", "14")
    assert (code, report["state"], report["runs"]) == (1, "stopped", 14)
    assert [c["change"]["new"]["id"] for c in report["culprits"]] == ["v007"]
    assert any("10 of 24 points not run" in note for note in report["notes"])


@pytest.mark.slow
def test_a_budget_of_time_ends_what_is_under_way_and_a_resume_has_what_is_left(tmp_path: Path) -> None:
    levels: dict[str, str | float] = {**stepped(6), "v005": "slow 30"}
    values_hunt(tmp_path, levels)
    with ends():
        code, report = report_of(tmp_path, "run", "--max-time", "4 s")
    assert (code, report["state"]) == (3, "stopped")
    assert "the budget of 4.0 s is spent" in report["notes"][0]
    assert re.search(r"--max-time '(\d+) s'", report["resume"])
    assert report["runs"] == len(ran(tmp_path)) - 1, "the slow one was stopped, and is no measurement"
    status = karat_here("hunt", "status", cwd=tmp_path).out
    assert "running" not in status
    with ends():
        code, again = report_of(tmp_path, "resume")
    assert (code, again["runs"]) == (3, report["runs"]), "time at work counts over all resumes"
    # With what it takes, it goes on.
    (tmp_path / "levels.txt").write_text("".join(f"{name} 100\n" for name in levels), encoding="utf-8")
    code, report = report_of(tmp_path, "resume", "--max-time", "10 min")
    assert (code, report["state"]) == (0, "done")


PRICES = "[cost]\nrun = 2\ngpu_second = 0.001\n"


@pytest.mark.slow
def test_a_budget_of_cost_is_never_overdrawn(tmp_path: Path) -> None:
    values_hunt(tmp_path, stepped(24, (7, 95.0)), PRICES + "[engine]\nslots = 4\n")
    code, report = report_of(tmp_path, "run", "--max-cost", "13")
    assert (code in {1, 3}, report["state"], report["runs"]) == (True, "stopped", 6)
    assert 12 < report["cost"] < 13
    assert "the budget of 13 (12" in report["notes"][0]
    assert report["resume"].endswith("--max-cost 26")
    assert {
        attempt["cost"] > 2 for point in report["stages"][0]["points"] for attempt in point.get("attempts", ())
    } == {True}
    code, report = report_of(tmp_path, "resume", "--max-cost", "400")
    assert (code, report["state"]) == (1, "done")
    assert report["cost"] == pytest.approx(2 * report["runs"], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--max-runs", "12"), ("--max-cost", "24.9"), ("--max-time", "1 h")])
def test_killed_and_resumed_a_budget_counts_what_was_done_before(tmp_path: Path, words: tuple[str, str]) -> None:
    values_hunt(tmp_path, stepped(24, (7, 95.0), (18, 90.0)), PRICES)
    for wanted in (3, 7):
        verb = "run" if wanted == 3 else "resume"
        more = words if verb == "run" else ()
        at_work = subprocess.Popen([sys.executable, "-m", "karat", "hunt", verb, "-q", *more], cwd=tmp_path)
        with ends():
            while at_work.poll() is None and len(ran(tmp_path)) < wanted:
                time.sleep(0.002)
        at_work.kill()
        at_work.wait()
    code, report = report_of(tmp_path, "resume")
    if words[0] == "--max-time":
        assert (code, report["state"], len(report["culprits"])) == (1, "done", 2)
    else:
        assert (report["state"], report["runs"]) == ("stopped", 12)
    assert len(ran(tmp_path)) <= report["runs"] + 2, "only what was under way is run again"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--max-runs", "0"), "--max-runs"),
        (("--max-runs", "-3"), "--max-runs"),
        (("--max-runs", "many"), "--max-runs"),
        (("--max-time", "0"), "search.max_time: expected a duration such as"),
        (("--max-time", "0 s"), "max_time: expected more than 0"),
        (("--max-time", "soon"), "search.max_time: expected a duration such as"),
        (("--max-time", "-5 min"), "search.max_time: expected a duration such as"),
        (("--max-cost", "0"), "max_cost: expected more than 0"),
        (("--max-cost", "-1"), "search.max_cost must be a number >= 0"),
        (("--max-cost", "nan"), "search.max_cost must be a number >= 0"),
        (("--max-cost", "inf"), "search.max_cost must be a number <= 1e+300"),
        (("--max-cost", "5"), "expected prices in [cost]"),
    ],
)
def test_budgets_that_make_no_sense_are_refused_before_anything_runs(
    tmp_path: Path, words: tuple[str, str], said: str
) -> None:
    values_hunt(tmp_path, stepped(5))
    result = karat_here("hunt", "run", *words, cwd=tmp_path)
    assert (result.code, said in result.err) == (2, True), result.err
    assert ran(tmp_path) == []
