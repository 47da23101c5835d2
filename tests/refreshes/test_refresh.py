"""What a refresh takes, refuses, and says; sources are plain data here, the wire is tested elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from factories.listed import Listed, artifact, job
from factories.repositories import Repository, curves, golden_path, golden_text, moved
from factories.worlds import GB200, H100, LOCK, NEW, OLD, World, kinds, logs, member, options
from karat.findings import ExitCode, Finding, Severity, exit_code
from karat.goldens.provenance import read_lock, read_record
from karat.refreshes.refresh import refresh
from karat.refreshes.report import State


@pytest.fixture
def world(repository: Repository, tmp_path: Path) -> World:
    return World(repository, tmp_path / "cache")


def test_new_values_are_written_in_the_style_of_the_file(world: World) -> None:
    incoming = golden_text(curves(2), indent=None)
    result = world.refresh([job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): incoming})])
    assert [o.state for o in result.outcomes] == [State.WRITTEN]
    assert world.read("a") == NEW
    assert exit_code(result.all_findings()) == ExitCode.OK
    assert (result.tests, result.found) == (1, 1)


def test_lock_and_record_say_where_values_came_from(world: World) -> None:
    world.refresh([job("gpt/a - dev", labels=H100, attempt=2)], [(logs("a", attempt=2), {member(): NEW})])
    entry = read_lock(world.repository.root / LOCK)["gpt/a/golden_values_dev_dgx_h100.json"]
    assert (entry.source, entry.run, entry.attempt, entry.commit) == ("github", "7", 2, "c0ffee")
    assert (entry.job, entry.platform, entry.date) == ("gpt/a - dev", "dgx_h100", "2026-01-01T00:00:00Z")
    record = read_record(world.repository.root)
    assert record is not None
    assert (record.run_id, record.scope, record.files) == ("7", "all", (golden_path("a"),))


def test_a_truncated_file_is_refused_and_the_old_golden_kept(world: World) -> None:
    died = golden_text(curves(2), stop=13)
    result = world.refresh([job("gpt/a - dev", "success", labels=H100)], [(logs("a"), {member(): died})])
    assert [o.state for o in result.outcomes] == [State.REFUSED]
    assert kinds(result) == ["truncated"]
    assert world.status() == []
    assert exit_code(result.all_findings()) == ExitCode.FAIL
    assert result.record is not None
    assert "step 13 of 50" in result.record.not_refreshed[0]


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda c: {k: v for k, v in c.items() if k != "num-zeros"}, "lost-metric"),
        (lambda c: {**c, "lm loss": [*c["lm loss"][:30], float("nan"), *c["lm loss"][31:]]}, "new-nan"),
    ],
)
def test_what_is_not_all_there_is_refused(world: World, spoil: object, kind: str) -> None:
    values = {name: list(curve) for name, curve in curves(2).items()}
    spoilt = spoil(values)  # type: ignore[operator]
    blocks = {
        name: {
            "start_step": 1,
            "end_step": 50,
            "step_interval": 1,
            "values": {str(i): ("nan" if np.isnan(v) else v) for i, v in enumerate(curve, 1)},
        }
        for name, curve in spoilt.items()
    }
    result = world.refresh([job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): json.dumps(blocks)})])
    assert kind in kinds(result)
    assert world.read("a") == OLD


def test_accept_incomplete_takes_it_and_is_recorded(world: World) -> None:
    died = golden_text(curves(2), stop=13)
    result = world.refresh(
        [job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): died})], options(accept_incomplete=True)
    )
    assert world.read("a") == died
    assert kinds(result) == []
    assert "accepted-incomplete" in kinds(result, Severity.WARN)
    entry = read_lock(world.repository.root / LOCK)["gpt/a/golden_values_dev_dgx_h100.json"]
    assert entry.accepted == "--accept-incomplete"
    assert result.record is not None
    assert result.record.accepted == (golden_path("a"),)


@pytest.mark.parametrize("conclusion", ["cancelled", "timed_out"])
def test_a_complete_file_of_a_stopped_job_is_taken_with_a_warning(world: World, conclusion: str) -> None:
    result = world.refresh(
        [job("gpt/a - dev", conclusion, labels=H100)], [(logs("a"), {member(): NEW})], options("only-failing")
    )
    assert world.read("a") == NEW
    assert "from-unfinished-job" in kinds(result, Severity.WARN)
    assert exit_code(result.all_findings()) == ExitCode.OK


def test_far_moved_values_are_taken_and_left_to_karat_diff(world: World) -> None:
    far = {name: moved(curve, 3) for name, curve in curves(1).items()}
    result = world.refresh([job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): golden_text(far)})])
    assert result.outcomes[0].state is State.WRITTEN
    assert exit_code(result.all_findings()) == ExitCode.OK
    assert "value-drift" in kinds(result, Severity.WARN)


def test_a_golden_that_no_run_leaves_behind_is_refused(world: World) -> None:
    scaled = {name: np.round(curve * 1.001, 5) for name, curve in curves(1).items()}
    result = world.refresh([job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): golden_text(scaled)})])
    assert result.outcomes[0].state is State.REFUSED
    assert "rescaled" in kinds(result, Severity.FAIL)


def test_only_failing_leaves_successful_jobs_alone_per_platform(world: World) -> None:
    jobs = [
        job("gpt/a - dev", "failure", labels=H100),
        job("gpt/a - dev", "success", labels=GB200),
        job("gpt/b - dev", "success", labels=H100),
    ]
    result = world.refresh(
        jobs,
        [
            (logs("a", uuid="1"), {member("dgx_h100"): NEW}),
            (logs("a", uuid="2"), {member("dgx_gb200"): NEW}),
            (logs("b"), {member("dgx_h100"): NEW}),
        ],
        options("only-failing"),
    )
    assert [o.path for o in result.outcomes] == [golden_path("a", "dgx_h100")]
    assert result.out_of_scope == 2
    assert result.jobs == {"dgx_gb200": {"success": 1}, "dgx_h100": {"failure": 1, "success": 1}}


def test_artifacts_surely_out_of_scope_are_not_even_fetched(world: World) -> None:
    source = Listed(
        world.folder,
        jobs=[job("gpt/a - dev", "success", labels=H100), job("gpt/b - dev", "failure", labels=H100)],
        artifacts=[(logs("a"), {member(): NEW}), (logs("b"), {member(): NEW})],
    )
    refresh(source, world.repository.root, options("only-failing"))
    assert source.fetched == ["logs-b-7-ab12"]


def test_the_newest_attempt_wins_in_any_order(world: World) -> None:
    jobs = [job("gpt/a - dev", "failure", labels=H100, attempt=n) for n in (2, 3, 1)]
    texts = {n: golden_text(curves(n + 1)) for n in (1, 2, 3)}
    found = [(logs("a", attempt=n, uuid=f"{n}"), {member(): texts[n]}) for n in (3, 1, 2)]
    result = world.refresh(jobs, found)
    assert world.read("a") == texts[3]
    assert result.superseded == 2
    world.refresh(jobs, found, options(attempt=2))
    assert world.read("a") == texts[2]


def test_an_attempt_that_left_nothing_is_not_replaced_by_an_older_one(world: World) -> None:
    jobs = [job("gpt/a - dev", "failure", labels=H100, attempt=n) for n in (1, 2)]
    result = world.refresh(jobs, [(logs("a", attempt=1), {member(): NEW})], options("only-failing"))
    assert world.read("a") == OLD
    assert kinds(result) == ["artifact-missing"]
    assert exit_code(result.all_findings()) == ExitCode.CANNOT_VERIFY


def test_two_jobs_that_claim_one_golden_are_both_refused(world: World) -> None:
    jobs = [job("gpt/a - dev", labels=H100), job("gpt/a - latest", labels=H100)]
    found = [(logs("a", uuid="1"), {member(): NEW}), (logs("a", uuid="2"), {member(): golden_text(curves(3))})]
    result = world.refresh(jobs, found)
    assert world.read("a") == OLD
    assert kinds(result) == ["ambiguous-job"] * 2


def test_twins_without_anything_that_tells_are_not_guessed(world: World) -> None:
    jobs = [job("gpt/a - dev", "failure", id="1"), job("gpt/a - dev", "success", id="2")]
    result = world.refresh(jobs, [(logs("a"), {member(): NEW})], options("only-failing"))
    assert kinds(result) == ["ambiguous-job"]
    assert world.read("a") == OLD


def test_a_file_of_another_platform_than_its_job_is_refused(world: World) -> None:
    result = world.refresh([job("gpt/a - dev", labels=H100)], [(logs("a"), {member("dgx_gb200"): NEW})])
    assert kinds(result) == ["identity-conflict"]
    assert world.status() == []


def test_a_manifest_tells_what_no_name_does(world: World) -> None:
    """Which of two platforms' jobs left the artifact, and the image it ran in."""
    told = json.dumps(
        {"schema": "karat.artifact/1", "platform": "dgx_gb200", "identity": {"lane": "latest"}, "image": "nvcr:26.01"}
    )
    jobs = [job("gpt/b - dev", labels=H100), job("gpt/b - dev", "success", labels=GB200)]
    contents = {"golden_values_dev_dgx_gb200.json": NEW, "karat-manifest.json": told}
    result = world.refresh(jobs, [(logs("b"), contents)])
    assert world.read("b", "dgx_gb200") == NEW, [f.message for f in result.all_findings()]
    entry = read_lock(world.repository.root / LOCK)["gpt/b/golden_values_dev_dgx_gb200.json"]
    assert (entry.image, entry.job) == ("nvcr:26.01", "gpt/b - dev")


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"identity": {"case": "b"}}, "its manifest says case=b, its name case=a"),
        ({"run_id": 8}, "its manifest says run_id=8, its name run_id=7"),
    ],
)
def test_a_manifest_that_contradicts_its_artifact_s_name_is_a_conflict(
    world: World, told: dict[str, object], says: str
) -> None:
    contents = {member(): NEW, member("dgx_gb200"): NEW, "karat-manifest.json": json.dumps(told)}
    jobs = [job(f"gpt/{case} - dev", labels=labels) for case in "ab" for labels in (H100, GB200)]
    result = world.refresh(jobs, [(logs("a"), contents)])
    said = [f.message for f in result.all_findings() if f.kind == "identity-conflict"]
    assert len(said) == 1, "one cause, one finding"
    assert says in said[0]
    assert world.status() == []


def test_a_manifest_that_contradicts_a_file_s_name_is_a_conflict(world: World) -> None:
    told = json.dumps({"schema": "karat.artifact/1", "platform": "dgx_gb200"})
    jobs = [job("gpt/a - dev", labels=H100), job("gpt/a - dev", labels=GB200)]
    result = world.refresh(jobs, [(logs("a"), {member("dgx_h100"): NEW, "karat-manifest.json": told})])
    said = [f.message for f in result.all_findings() if f.kind == "identity-conflict"]
    assert len(said) == 1
    assert "its manifest says platform=dgx_gb200, its name platform=dgx_h100" in said[0]
    assert world.status() == []


DEEP = "results/iteration=0/0/assets/basic/a-dev-dgx-h100"


def test_of_two_files_of_one_artifact_the_one_at_the_top_is_taken_and_said_to_be(world: World) -> None:
    contents = {member(): NEW, f"{DEEP}/{member()}": golden_text(curves(3))}
    result = world.refresh([job("gpt/a - dev", labels=H100)], [(logs("a"), contents)])
    assert world.read("a") == NEW
    assert kinds(result) == []
    said = [f.message for f in result.all_findings() if f.kind == "claimed-twice"]
    assert len(said) == 1
    assert f"{member()} at the top of artifact" in said[0]
    assert f"{DEEP}/{member()}" in said[0]


def test_a_copy_of_the_file_at_the_top_is_nothing_to_speak_of(world: World) -> None:
    contents = {member(): NEW, f"{DEEP}/{member()}": NEW}
    result = world.refresh([job("gpt/a - dev", labels=H100)], [(logs("a"), contents)])
    assert world.read("a") == NEW
    assert "claimed-twice" not in [f.kind for f in result.all_findings()]


def test_of_two_files_below_the_top_neither_is_taken(world: World) -> None:
    contents = {f"x/{member()}": NEW, f"y/{member()}": golden_text(curves(3))}
    result = world.refresh([job("gpt/a - dev", labels=H100)], [(logs("a"), contents)])
    assert kinds(result) == ["claimed-twice"]
    assert world.read("a") == OLD


@pytest.mark.parametrize(
    "manifest",
    ["{", "[]", '{"schema": "other/1"}', '{"schema": "karat.artifact/1", "identity": {"case": "../../etc"}}'],
)
def test_a_manifest_that_cannot_be_trusted_stops_its_artifact(world: World, manifest: str) -> None:
    result = world.refresh([], [(logs("a"), {member(): NEW, "karat-manifest.json": manifest})])
    assert len(kinds(result)) == 1
    assert world.status() == []


def test_a_second_file_is_a_golden_only_where_one_was_committed(world: World) -> None:
    world.repository.write(golden_path("b", "dgx_h100_2nd"), OLD)
    world.repository.commit()
    jobs = [job("gpt/a - dev", labels=H100), job("gpt/b - dev", labels=H100)]
    contents = {member(): NEW, member(again="_2nd"): NEW}
    result = world.refresh(jobs, [(logs("a"), contents), (logs("b"), contents)])
    assert sorted(o.path for o in result.outcomes) == [
        golden_path("a"),
        golden_path("b"),
        golden_path("b", "dgx_h100_2nd"),
    ]
    assert kinds(result, Severity.WARN).count("not-a-golden") == 1


def test_a_failed_transfer_writes_nothing_unless_told_to_keep_going(world: World) -> None:
    jobs = [job("gpt/a - dev", labels=H100), job("gpt/b - dev", labels=H100)]
    found = [(logs("a"), {member(): NEW}), (logs("b"), {member(): NEW})]
    cut = Finding(
        kind="transfer-failed", severity=Severity.FAIL, path="logs-b-7-ab12", message="artifact logs-b-7-ab12: cut"
    )
    failing = {logs("b").id: cut}
    result = world.refresh(jobs, found, failing=failing)
    assert world.status() == []
    assert exit_code(result.all_findings()) == ExitCode.CANNOT_VERIFY
    result = world.refresh(jobs, found, options(keep_going=True), failing=failing)
    assert world.read("a") == NEW
    assert exit_code(result.all_findings()) == ExitCode.CANNOT_VERIFY


def test_a_dry_run_judges_the_same_and_writes_nothing(world: World) -> None:
    jobs = [job("gpt/a - dev", labels=H100)]
    found = [(logs("a"), {member(): NEW})]
    dry = world.refresh(jobs, found, options(dry_run=True))
    assert world.status() == []
    assert read_record(world.repository.root) is None
    wet = world.refresh(jobs, found)
    assert [o.findings for o in dry.outcomes] == [o.findings for o in wet.outcomes]
    assert [o.state for o in dry.outcomes] == [o.state for o in wet.outcomes]


def test_one_metric_alone_with_provenance_of_its_own(world: World) -> None:
    jobs = [job("gpt/a - dev", labels=H100)]
    world.refresh(jobs, [(logs("a"), {member(): NEW})], options(metrics=("lm loss",)))
    old, new, got = (json.loads(t) for t in (OLD, NEW, world.read("a")))
    assert got == {**old, "lm loss": new["lm loss"]}
    entry = read_lock(world.repository.root / LOCK)["gpt/a/golden_values_dev_dgx_h100.json"]
    assert entry.source == "unknown"
    assert set(entry.metrics) == {"lm loss"}
    assert entry.metrics["lm loss"].run == "7"


def test_one_metric_of_a_run_that_died_elsewhere_is_still_refused(world: World) -> None:
    died = golden_text(curves(2), stop=13)
    result = world.refresh(
        [job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): died})], options(metrics=("lm loss",))
    )
    assert world.read("a") == OLD
    assert [o.state for o in result.outcomes] == [State.REFUSED]


def test_a_metric_that_did_not_come_is_refused(world: World) -> None:
    result = world.refresh(
        [job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): NEW})], options(metrics=("grad norm",))
    )
    assert kinds(result) == ["lost-metric"]


def test_an_uncommitted_edit_is_given_to_git_before_it_is_replaced(world: World) -> None:
    edited = golden_text(curves(9))
    world.repository.write(golden_path("a"), edited)
    jobs = [job("gpt/a - dev", labels=H100)]
    result = world.refresh(jobs, [(logs("a"), {member(): NEW})])
    (kept,) = [f for f in result.all_findings() if f.kind == "kept-edits"]
    assert kept.next is not None
    oid = kept.next.split()[3]
    assert world.repository.git("cat-file", "-p", oid) == edited
    # What karat itself wrote before is nobody's edit.
    result = world.refresh(jobs, [(logs("a"), {member(): golden_text(curves(4))})])
    assert "kept-edits" not in kinds(result, Severity.WARN)


def test_a_second_refresh_of_the_same_run_changes_nothing(world: World) -> None:
    jobs = [job("gpt/a - dev", labels=H100)]
    world.refresh(jobs, [(logs("a"), {member(): NEW})])
    before = (world.repository.root / LOCK).read_bytes()
    result = world.refresh(jobs, [(logs("a"), {member(): NEW})])
    assert [o.state for o in result.outcomes] == [State.UNCHANGED]
    assert (world.repository.root / LOCK).read_bytes() == before


def test_a_place_outside_the_golden_paths_is_refused(world: World) -> None:
    opts = options()
    bad = msgspec.structs.replace(opts.settings, target="src/{case}.json")
    result = world.refresh(
        [job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): NEW})], msgspec.structs.replace(opts, settings=bad)
    )
    assert kinds(result) == ["outside-goldens"]
    assert world.status() == []


@pytest.mark.parametrize("where", ["elsewhere", ".git/modules"])
def test_a_folder_that_leads_out_of_the_tree_or_to_git_is_not_followed(
    world: World, tmp_path: Path, where: str
) -> None:
    outside = (world.repository.root / ".git/modules") if ".git" in where else tmp_path / where
    outside.mkdir()
    link = world.repository.root / "tests/functional_tests/test_cases/bert"
    link.symlink_to(outside)
    jobs = [job("bert/x - dev", labels=H100), job("gpt/b - dev", labels=H100)]
    found = [(logs("x"), {member(): NEW}), (logs("b"), {member(): NEW})]
    for dry_run in (True, False):
        result = world.refresh(jobs, found, options(dry_run=dry_run))
        assert [o.state for o in result.outcomes] == [State.REFUSED, State.WRITTEN]
        assert kinds(result) == ["not-refreshed"]
        assert "leads to" in result.outcomes[0].findings[0].message
    assert list(outside.iterdir()) == []
    assert list(read_lock(world.repository.root / LOCK)) == ["gpt/b/golden_values_dev_dgx_h100.json"]


def test_an_old_golden_that_is_a_wreck_is_replaced_and_said_to_be(world: World) -> None:
    world.repository.write(golden_path("a"), "<<<<<<< HEAD\n{}\n")
    world.repository.commit()
    result = world.refresh([job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): NEW})])
    assert world.read("a") == NEW
    assert exit_code(result.all_findings()) == ExitCode.CANNOT_VERIFY


def test_finding_nothing_is_not_success(world: World) -> None:
    result = world.refresh([job("gpt/a - dev", "success", labels=H100)], [(artifact("coverage"), {"x": "y"})])
    assert exit_code(result.all_findings()) == ExitCode.CANNOT_VERIFY
    assert result.unmatched == ("coverage",)


def test_no_failed_job_means_nothing_to_do(world: World) -> None:
    result = world.refresh(
        [job("gpt/a - dev", "success", labels=H100)], [(logs("a"), {member(): NEW})], options("only-failing")
    )
    assert exit_code(result.all_findings()) == ExitCode.OK
    assert result.outcomes == ()


def test_only_and_platform_narrow(world: World) -> None:
    jobs = [job("gpt/a - dev", labels=H100), job("gpt/a - dev", labels=GB200), job("gpt/b - dev", labels=H100)]
    found = [
        (logs("a", uuid="1"), {member("dgx_h100"): NEW}),
        (logs("a", uuid="2"), {member("dgx_gb200"): NEW}),
        (logs("b"), {member("dgx_h100"): NEW}),
    ]
    result = world.refresh(jobs, found, options(platforms=("*gb200",)))
    assert [o.path for o in result.outcomes] == [golden_path("a", "dgx_gb200")]
    result = world.refresh(jobs, found, options(only=("*/b/*",)))
    assert [o.path for o in result.outcomes] == [golden_path("b")]
    assert kinds(result) == []


def test_the_last_of_several_restarts_counts(world: World) -> None:
    def at(restart: str) -> str:
        return f"results/iteration=0/{restart}/assets/basic/x/{member()}"

    found = (logs("a"), {at("9"): golden_text(curves(3)), at("10"): NEW})
    world.refresh([job("gpt/a - dev", labels=H100)], [found])
    assert world.read("a") == NEW
