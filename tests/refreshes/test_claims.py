"""Who wins where several files claim one golden, and which attempt counts."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from factories.listed import artifact, job
from factories.repositories import Repository, curves, golden_path, golden_text
from factories.worlds import H100, LOCK, NEW, OLD, World, kinds, logs, member, options
from karat.findings import Finding, Severity
from karat.goldens.provenance import read_lock, read_record
from karat.refreshes.claims import Claim, settle
from karat.refreshes.jobs import JobGroup
from karat.refreshes.report import State


@pytest.fixture
def world(repository: Repository, tmp_path: Path) -> World:
    return World(repository, tmp_path / "cache")


def claim(attempt: int | None, group: JobGroup | None) -> Claim:
    return Claim(
        target="g.json",
        member="g.json",
        file=Path("g.json"),
        artifact=artifact("x"),
        identity={},
        job=group,
        attempt=attempt,
    )


GROUP = JobGroup(key=("7", "a", ""), identity={}, attempts=(), current=None)
OTHER = JobGroup(key=("7", "b", ""), identity={}, attempts=(), current=None)


def test_the_newest_attempt_of_one_job_wins() -> None:
    for claims in ([claim(1, GROUP), claim(2, GROUP)], [claim(2, GROUP), claim(1, GROUP)]):
        winner, findings = settle(claims)
        assert winner is not None
        assert (winner.attempt, findings) == (2, [])


@pytest.mark.parametrize(
    "claims",
    [
        [claim(1, None), claim(2, None)],
        [claim(1, GROUP), claim(2, OTHER)],
        [claim(1, GROUP), claim(None, GROUP)],
        [claim(1, GROUP), claim(1, GROUP)],
    ],
)
def test_anything_else_is_refused(claims: list[Claim]) -> None:
    winner, findings = settle(claims)
    assert winner is None
    assert [f.kind for f in findings] == ["claimed-twice"]


def test_a_job_that_was_not_run_again_keeps_its_attempt_under_a_pinned_one(world: World) -> None:
    jobs = [job("gpt/a - dev", labels=H100), *(job("gpt/b - dev", labels=H100, attempt=n) for n in (1, 2, 3))]
    found = [(logs("a"), {member(): NEW})]
    found += [(logs("b", attempt=n, uuid=f"{n}"), {member(): golden_text(curves(n + 1))}) for n in (1, 2, 3)]
    world.refresh(jobs, found, options(attempt=2))
    assert (world.read("a"), world.read("b")) == (NEW, golden_text(curves(3)))


def test_an_artifact_of_a_current_or_an_old_attempt_is_not_guessed(world: World) -> None:
    """Of one job its attempt would be superseded, of the other it is the one that counts."""
    jobs = [
        *(job("gpt/a - dev", labels=["dgx-h100"], attempt=n) for n in (1, 2)),
        job("gpt/a - latest", labels=["dgx-h100"]),
    ]
    result = world.refresh(jobs, [(logs("a"), {member(): NEW})])
    (finding,) = [f for f in result.all_findings() if f.kind == "ambiguous-job"]
    assert finding.next == "gh run download 7 --name logs-a-7-ab12", "--scope all was given"
    assert kinds(result) == ["ambiguous-job"]
    assert world.read("a") == OLD


@pytest.mark.parametrize(("end", "text"), [("success", OLD), ("timed_out", NEW)])
def test_without_a_job_the_manifest_s_conclusion_decides(world: World, end: str, text: str) -> None:
    told = json.dumps({"schema": "karat.artifact/1", "conclusion": end, "identity": {"model": "gpt"}})
    contents = {member(): NEW, "karat-manifest.json": told}
    result = world.refresh([], [(logs("a"), contents)], options("only-failing"))
    assert world.read("a") == text
    assert result.out_of_scope == (end == "success")


def test_what_cannot_be_read_is_not_accepted_by_any_flag(world: World) -> None:
    result = world.refresh(
        [job("gpt/a - dev", "cancelled", labels=H100)],
        [(logs("a"), {member(): "no golden"})],
        options(accept_incomplete=True),
    )
    assert [o.state for o in result.outcomes] == [State.REFUSED]
    assert result.record is not None
    assert result.record.accepted == ()
    # Nothing was taken, so nothing is said to have been taken from a job that was stopped.
    assert kinds(result, Severity.WARN) == []


def test_prune_forgives_rows_and_nothing_else(world: World) -> None:
    died = golden_text(curves(2), stop=13)
    result = world.refresh([job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): died})], options(prune=True))
    assert kinds(result) == ["truncated"]
    assert world.read("a") == OLD


def test_a_lock_line_keeps_the_date_of_the_run_that_brought_the_values(world: World) -> None:
    jobs, found = [job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): NEW})]
    world.refresh(jobs, found)
    later = msgspec.structs.replace(options(), date="2027-01-01T00:00:00Z")
    world.refresh(jobs, found, later)
    (entry,) = read_lock(world.repository.root / LOCK).values()
    assert entry.date == "2026-01-01T00:00:00Z"


def test_a_refresh_that_stops_over_a_transfer_leaves_no_record(world: World) -> None:
    jobs = [job(f"gpt/{case} - dev", labels=H100) for case in "ab"]
    cut = Finding(kind="transfer-failed", severity=Severity.FAIL, path=logs("b").name, message="cut")
    result = world.refresh(jobs, [(logs("a"), {member(): NEW}), (logs("b"), {})], failing={logs("b").id: cut})
    assert result.outcomes == ()
    assert read_record(world.repository.root) is None
    assert world.status() == []


@pytest.mark.parametrize("kind", ["artifact-expired", "artifact-truncated", "artifact-corrupt"])
def test_an_artifact_that_will_never_come_stops_no_other(world: World, kind: str) -> None:
    jobs = [job(f"gpt/{case} - dev", labels=H100) for case in "ab"]
    gone = Finding(kind=kind, severity=Severity.FAIL, path=logs("b").name, message="")
    result = world.refresh(jobs, [(logs("a"), {member(): NEW}), (logs("b"), {})], failing={logs("b").id: gone})
    assert [o.path for o in result.outcomes] == [golden_path("a")]
    assert kinds(result) == [kind]
