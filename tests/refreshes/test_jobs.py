"""Of each job, the newest finished attempt counts, whatever order the server lists them in."""

from __future__ import annotations

import random

from hypothesis import given, strategies as st

from factories.listed import artifact, job
from karat.refreshes.jobs import group_jobs
from karat.settings import RefreshSettings
from karat.sources.source import CiJob as Job, Run

SETTINGS = RefreshSettings(jobs=("{model}/{case} - {lane}",), platforms={"*h100*": "dgx_h100", "*gb200*": "dgx_gb200"})
RUNS = (Run(id="7"),)


@given(st.permutations(range(4)))
def test_any_order_gives_the_newest_finished_attempt(order: list[int]) -> None:
    jobs = [job("gpt/a - dev", "failure", attempt=n) for n in (1, 2, 3)]
    jobs.append(job("gpt/a - dev", None, attempt=4))
    (group,) = group_jobs([jobs[i] for i in order], RUNS, SETTINGS)
    assert group.current is not None
    assert group.current.attempt == 3
    assert [j.attempt for j in group.attempts] == [1, 2, 3, 4]


def test_jobs_that_were_not_run_again_keep_their_attempt() -> None:
    jobs = [job("gpt/a - dev", "failure"), job("gpt/b - dev", "success"), job("gpt/a - dev", "success", attempt=2)]
    groups = group_jobs(jobs, RUNS, SETTINGS)
    assert [(g.key[1], g.current.attempt if g.current else None) for g in groups] == [
        ("gpt/a - dev", 2),
        ("gpt/b - dev", 1),
    ]


def test_one_name_on_two_platforms_is_two_jobs() -> None:
    jobs = [job("gpt/a - dev", labels=["dgx-h100"]), job("gpt/a - dev", "success", labels=["GB200-pool"])]
    groups = group_jobs(jobs, RUNS, SETTINGS)
    assert [(g.identity["platform"], g.failing) for g in groups] == [("dgx_gb200", False), ("dgx_h100", True)]
    assert not any(g.twins for g in groups)


def test_one_name_twice_without_a_platform_is_said_to_be_twins() -> None:
    (group,) = group_jobs([job("gpt/a - dev", id="1"), job("gpt/a - dev", "success", id="2")], RUNS, SETTINGS)
    assert group.twins
    assert group.conclusions == {"failure", "success"}


def test_jobs_of_another_kind_are_none_of_ours() -> None:
    assert group_jobs([job("lint"), job("build")], RUNS, SETTINGS) == []
    assert len(group_jobs([job("lint")], RUNS, RefreshSettings())) == 1


def test_an_artifact_belongs_to_the_last_attempt_that_had_begun() -> None:
    (group,) = group_jobs([job("gpt/a - dev", attempt=n) for n in (3, 1, 2)], RUNS, SETTINGS)
    assert [group.attempt_of(artifact("x", attempt=n)) for n in (1, 2, 3)] == [1, 2, 3]


def test_a_pinned_attempt_does_not_inherit_later_artifacts() -> None:
    jobs = [job("gpt/a - dev", attempt=n) for n in (1, 2, 3)]
    (group,) = group_jobs(jobs, RUNS, SETTINGS, pinned=2)
    assert group.current is not None
    assert group.current.attempt == 2
    assert group.attempt_of(artifact("x", attempt=3)) == 3


def test_attempts_carried_over_unchanged_are_one() -> None:
    jobs = [job("gpt/a - dev", "success", attempt=n, started=1000.0) for n in (1, 2)]
    (group,) = group_jobs(jobs, RUNS, SETTINGS)
    assert group.current is not None
    assert group.attempt_of(artifact("x", attempt=1)) == group.current.attempt == 2


def test_without_times_nothing_is_guessed() -> None:
    jobs = [Job(id=str(n), run_id="7", name="gpt/a - dev", attempt=n, conclusion="failure") for n in (1, 2)]
    random.Random(1).shuffle(jobs)
    (group,) = group_jobs(jobs, RUNS, SETTINGS)
    assert group.attempt_of(artifact("x")) is None


def test_gitlab_jobs_are_named_with_stage_and_bridge() -> None:
    settings = RefreshSettings(jobs=("functional:run_{lane}_{platform}/{model}/{case}",))
    found = Job(id="1", run_id="9", name="gpt3_tp2", stage="gpt", conclusion="failure")
    (group,) = group_jobs([found], (Run(id="9", name="functional:run_dev_dgx_h100"),), settings)
    assert group.identity == {"lane": "dev", "platform": "dgx_h100", "model": "gpt", "case": "gpt3_tp2"}
