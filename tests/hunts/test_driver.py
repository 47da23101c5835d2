"""Whole hunts, for real: a timeline, shell scripts as probes, the local engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs

from factories.hunts import found, hunted, hunting, ran, stepped, values_hunt
from karat.changepoints.series import Outcome
from karat.engines.job import Engine, EngineSettings, Job, JobResult, open_engine
from karat.findings import exit_code
from karat.hunts.report.assemble import build_report, findings_of


@pytest.mark.slow
def test_two_planted_regressions_are_found_and_confirmed(tmp_path: Path) -> None:
    folder = tmp_path / "ein Ort 🜚"
    report = hunted(values_hunt(folder, stepped(24, (7, 95.0), (18, 90.0))))
    assert found(report) == [("regression", "v006", "v007"), ("regression", "v017", "v018")]
    assert [c.change.verdict.confirmed for c in report.culprits] == [True, True]
    assert report.state == "done"
    assert len(ran(folder)) == report.runs < 2 * 24
    assert [int(exit_code(findings_of(report)))] == [1]


@pytest.mark.slow
def test_both_sides_of_a_change_are_confirmed_in_pairs_each_in_one_slot(tmp_path: Path) -> None:
    file = values_hunt(tmp_path, stepped(24, (7, 95.0)))
    with hunting(file, open_engine(EngineSettings(slots=3), tmp_path / "work")) as journal:
        attempts = [row for row in journal.attempts() if row.purpose.startswith("confirm")]
    sides: dict[str, list[str]] = {}
    for attempt in sorted(attempts, key=lambda one: one.started):
        sides.setdefault(attempt.point, []).append(attempt.where)
    assert set(sides) == {"v006", "v007"}
    assert sides["v006"] == sides["v007"]


@pytest.mark.slow
def test_what_is_left_of_a_budget_rules_out_what_was_wished_for(tmp_path: Path) -> None:
    levels = stepped(24, (14, 90.0), (18, 100.0))
    thrifty = hunted(values_hunt(tmp_path / "a", levels), min_dip=4, min_dip_sure=0.2)
    assert found(thrifty) == []
    assert thrifty.stages[0].missed is not None
    assert thrifty.stages[0].missed.chance > 0.5
    report = hunted(values_hunt(tmp_path / "b", levels), min_dip=4, min_dip_sure=0.2, max_runs=24)
    assert found(report) == [("dip", "v013", "v014"), ("dip", "v017", "v018")]
    assert report.runs <= 24
    flat = hunted(values_hunt(tmp_path / "c", stepped(24)), min_dip=4, min_dip_sure=0.2, max_runs=24)
    assert flat.stages[0].missed is not None
    assert flat.stages[0].missed.chance == 0
    assert flat.runs < 12


@pytest.mark.slow
def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    report = hunted(values_hunt(tmp_path, stepped(10)))
    assert report.culprits == ()
    assert int(exit_code(findings_of(report))) == 0


@pytest.mark.slow
def test_a_sweep_names_the_dip_and_keeps_failures_apart(tmp_path: Path) -> None:
    levels = stepped(16, (5, 95.0), (8, 100.0))
    levels |= {"v002": "skip", "v011": "crash"}
    report = hunted(values_hunt(tmp_path, levels), strategy="sweep")
    assert found(report) == [("dip", "v004", "v005"), ("dip", "v007", "v008")]
    assert {c.change.dip for c in report.culprits} == {0}
    outcomes = {p.point.id: p.outcome for p in report.stages[0].points}
    assert (outcomes["v002"], outcomes["v011"]) == (Outcome.BROKEN, Outcome.CRASH)
    crashed = report.stages[0].points[11]
    assert crashed.attempts[0].signature == "ImportError: cannot import name 'x' from 'y'"
    assert "cannot import name" in crashed.log
    kinds = Counter((f.kind, f.severity.value) for f in findings_of(report))
    assert kinds == {("dip", "warn"): 2, ("crash-range", "warn"): 1}


@pytest.mark.slow
def test_a_level_that_moved_across_crashes_and_both_ends_of_them_are_three_changes(tmp_path: Path) -> None:
    levels = stepped(14, (8, 60.0)) | {f"v{n:03d}": "crash" for n in range(5, 8)}
    report = hunted(values_hunt(tmp_path, levels), grid=1)
    assert sorted(found(report)) == [
        ("crash", "v004", "v005"),
        ("recovery", "v007", "v008"),
        ("regression", "v004", "v008"),
    ]
    assert {c.change.verdict.confirmed for c in report.culprits} == {True}
    assert {tuple(s.id for s in c.suspects)[-1:] for c in report.culprits} <= {(), ("v005",), ("v008",)}


@pytest.mark.slow
def test_points_that_cannot_be_tried_widen_the_answer(tmp_path: Path) -> None:
    levels: dict[str, str | float] = {**stepped(8, (4, 90.0)), "v003": "skip", "v004": "skip"}
    (culprit,) = hunted(values_hunt(tmp_path, levels)).culprits
    assert (culprit.change.old.id, culprit.change.new.id) == ("v002", "v005")
    assert culprit.change.span.between == (3, 4)


@pytest.mark.slow
def test_skipped_points_are_not_run(tmp_path: Path) -> None:
    file = values_hunt(tmp_path, stepped(9, (6, 90.0)))
    text = file.read_text(encoding="utf-8")
    file.write_text('skip = ["v001", "v003..v004", "nowhere"]\n' + text, encoding="utf-8")
    report = hunted(file, strategy="sweep")
    assert not {"v001", "v003", "v004"} & set(ran(tmp_path))
    missing = [p.point.missing for p in report.stages[0].points if p.outcome is Outcome.MISSING]
    assert missing == ["skipped, as hunt.toml says"] * 3
    assert "skip: no point is called 'nowhere'" in report.stages[0].notes


@pytest.mark.slow
def test_the_very_same_thing_is_measured_once(tmp_path: Path) -> None:
    levels = stepped(6)
    file = values_hunt(tmp_path, levels)
    text = file.read_text(encoding="utf-8").replace(
        "timeout =", "identify = \"sh -c 'echo value=same; echo commit.lib=1'\"\ntimeout ="
    )
    file.write_text(text, encoding="utf-8")
    report = hunted(file, strategy="sweep")
    assert len(ran(tmp_path)) == report.runs == 1
    shared = [p for p in report.stages[0].points if p.attempts[0].shared_with]
    assert [p.attempts[0].shared_with for p in shared] == ["v000"] * 5
    assert {p.values["speed"] for p in report.stages[0].points} == {(float(levels["v000"]),)}
    assert "shared with v000" in shared[0].flags[0]


@pytest.mark.slow
def test_points_of_one_build_are_one_point(tmp_path: Path) -> None:
    """v000 to v007 are one build, v008 to v015 another."""
    file = values_hunt(tmp_path, stepped(16, (8, 90.0)))
    script = "case $1 in v00[0-7]) echo value=old;; *) echo value=new;; esac; echo commit.lib=1"
    identify = f'identify = ["sh", "-c", "{script}", "sh", "{{value}}"]'
    file.write_text(file.read_text(encoding="utf-8").replace("timeout =", f"{identify}\ntimeout ="), encoding="utf-8")
    report = hunted(file)
    (culprit,) = report.culprits
    assert (culprit.change.old.id, culprit.change.new.id) == ("v007", "v008")
    searched = [a for p in report.stages[0].points for a in p.attempts if not a.shared_with and a.why != "confirming"]
    built = [a.identity["value"] for a in searched]
    assert sorted(built) == ["new", "new", "old", "old"], (
        "each was really run twice: once, met twice, is no second witness"
    )


@pytest.mark.slow
def test_the_budget_stops_it_and_a_resume_says_the_same(tmp_path: Path) -> None:
    levels = stepped(20, (5, 95.0), (13, 85.0))
    whole = hunted(values_hunt(tmp_path / "whole", levels))
    file = values_hunt(tmp_path / "parts", levels)
    before: tuple[object, ...] = ()
    for budget in (*range(3, 60, 7), 0):
        with hunting(file, max_runs=budget) as journal:
            entries = journal.attempts()
            report = build_report(journal)
        assert entries[: len(before)] == before, "what was measured stays"
        assert not budget or len(entries) <= budget
        before = entries
        if report.state == "stopped":
            assert f"the budget of {budget} runs is spent" in report.notes[0]
            (unfinished,) = [f for f in findings_of(report) if f.kind == "hunt-unfinished"]
            assert f"--max-runs {2 * budget}" in (unfinished.next or ""), "the same would stop"
    assert report.state == "done"
    assert found(report) == found(whole)
    assert ran(tmp_path / "parts") == ran(tmp_path / "whole"), "run by run"


@pytest.mark.slow
def test_several_at_a_time_come_to_the_same(tmp_path: Path) -> None:
    levels = stepped(24, (9, 95.0))
    file = values_hunt(tmp_path, levels, "[engine]\nslots = 3\n")
    report = hunted(file)
    assert found(report) == [("regression", "v008", "v009")]
    assert {a.where.rpartition(" ")[2] for p in report.stages[0].points for a in p.attempts} > {"0"}


class Losing:
    """An engine that loses machines: the first results of each point do not come back."""

    name = "local"
    abandoned = False

    def __init__(self, inner: Engine, times: int) -> None:
        self._inner, self._times = inner, times
        self._jobs: dict[str, Job] = {}
        self._lost: Counter[str] = Counter()

    @property
    def slots(self) -> int:
        return self._inner.slots

    def submit(self, job: Job) -> None:
        self._jobs[job.key] = job
        self._inner.submit(job)

    def wait(self, seconds: float | None = None) -> Sequence[JobResult]:
        return [self._seen(result) for result in self._inner.wait(seconds)]

    def _seen(self, result: JobResult) -> JobResult:
        value = self._jobs[result.key].identity["value"]
        if self._lost[value] >= self._times:
            return result
        self._lost[value] += 1
        return structs.replace(result, ran=(), lost="the node is gone", identity={}, identity_key="")

    def cancel(self, key: str) -> None:
        self._inner.cancel(key)

    def close(self) -> None:
        self._inner.close()


@pytest.mark.slow
def test_a_lost_machine_says_nothing_of_the_point(tmp_path: Path) -> None:
    file = values_hunt(tmp_path, stepped(8, (4, 90.0)))
    engine = Losing(open_engine(EngineSettings(slots=1), tmp_path / ".karat/hunt"), times=2)
    report = hunted(file, engine, strategy="sweep")
    assert found(report) == [("regression", "v003", "v004")]
    first = report.stages[0].points[0]
    assert [a.outcome for a in first.attempts] == [Outcome.BROKEN, Outcome.BROKEN, Outcome.OK]
    assert first.attempts[0].note == "the worker was lost: the node is gone"
    assert first.outcome is Outcome.OK
    assert first.flags == (), "a lost machine makes nothing flaky"


def test_where_every_machine_is_lost_it_ends_and_says_so(tmp_path: Path) -> None:
    file = values_hunt(tmp_path, stepped(2), "[engine]\nretries = 1\n")
    engine = Losing(open_engine(EngineSettings(slots=1), tmp_path / ".karat/hunt"), times=99)
    report = hunted(file, engine, strategy="sweep")
    findings = findings_of(report)
    assert int(exit_code(findings)) == 3
    assert any("found 0 of" in f.message for f in findings)


def test_no_value_of_the_environment_is_in_the_journal(tmp_path: Path) -> None:
    more = '[probe.env]\nAPI_TOKEN = "hush-hush-0123456789"\nMODE = "fast"\n'
    file = values_hunt(tmp_path, stepped(3), more)
    with hunting(file, strategy="sweep") as journal:
        kept = {name for e in journal.commands("0", "v000", 1) for name in e.env}
        path = journal.path
    assert {"API_TOKEN", "MODE"} <= kept
    for left in path.parent.glob("*.hunt*"):
        assert b"hush-hush" not in left.read_bytes()
