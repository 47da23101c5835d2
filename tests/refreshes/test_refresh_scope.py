"""What was asked for and cannot be had is said: unfinished jobs, attempts that never were, names that match nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from factories.listed import Listed, artifact, job
from factories.repositories import Repository, curves, golden_path, golden_text
from factories.worlds import GB200, H100, NEW, OLD, World, kinds, logs, member, options
from karat.findings import ExitCode, Severity, UsageError, exit_code
from karat.refreshes.refresh import refresh
from karat.refreshes.report import RefreshReport, State, lines, next_command
from karat.refreshes.worktree import read_golden
from karat.sources.open import SourceOptions, check_options
from karat.sources.source import CiJob as Job, Run
from karat.system.command import Command


@pytest.fixture
def world(repository: Repository, tmp_path: Path) -> World:
    return World(repository, tmp_path / "cache")


def code(result: RefreshReport) -> ExitCode:
    return exit_code(result.all_findings())


def test_what_an_unfinished_job_left_so_far_is_not_its_result(world: World) -> None:
    jobs = [job("gpt/a - dev", None, labels=H100), job("gpt/b - dev", labels=H100)]
    found = [(logs("a"), {member(): NEW}), (logs("b"), {member(): NEW})]
    result = world.refresh(jobs, found)
    assert [o.path for o in result.outcomes] == [golden_path("b")]
    assert world.read("a") == OLD
    assert kinds(result) == ["artifact-missing"]
    assert code(result) == ExitCode.CANNOT_VERIFY


def test_a_job_that_may_yet_fail_is_told_without_objection(world: World) -> None:
    jobs = [job("gpt/a - dev", None, labels=H100), job("gpt/b - dev", labels=H100)]
    result = world.refresh(jobs, [(logs("b"), {member(): NEW})], options("only-failing"))
    assert kinds(result, Severity.WARN)[0] == "not-refreshed"
    assert code(result) == ExitCode.OK


def test_a_job_that_a_finished_run_never_started_is_nobody_s_business(world: World) -> None:
    """GitLab's manual jobs have no conclusion, and never will."""
    source = Listed(
        world.folder,
        jobs=[job("gpt/a - dev", None, labels=H100), job("gpt/b - dev", labels=H100)],
        artifacts=[(logs("b"), {member(): NEW})],
        runs=[Run(id="7", conclusion="success")],
    )
    result = refresh(source, world.repository.root, options())
    assert code(result) == ExitCode.OK


def test_the_finished_attempt_counts_while_the_next_one_runs(world: World) -> None:
    jobs = [job("gpt/a - dev", "failure", labels=H100), job("gpt/a - dev", None, labels=H100, attempt=2)]
    found = [
        (logs("a", uuid="1"), {member(): NEW}),
        (logs("a", attempt=2, uuid="2"), {member(): golden_text(curves(3))}),
    ]
    result = world.refresh(jobs, found)
    assert world.read("a") == NEW
    assert code(result) == ExitCode.OK


def test_a_job_that_began_after_the_pinned_attempt_is_not_taken(world: World) -> None:
    jobs = [job("gpt/a - dev", labels=H100, attempt=2), job("gpt/b - dev", labels=H100, attempt=1)]
    found = [(logs("a", attempt=2), {member(): NEW}), (logs("b"), {member(): NEW})]
    result = world.refresh(jobs, found, options(attempt=1))
    assert (world.read("a"), world.read("b")) == (OLD, NEW)
    assert code(result) == ExitCode.OK


def test_an_attempt_that_never_was_is_a_mistake(world: World) -> None:
    jobs = [job("gpt/a - dev", labels=H100, attempt=n) for n in (1, 2)]
    with pytest.raises(UsageError, match=r"from 1 to 2, found 3") as caught:
        world.refresh(
            jobs, [], options(attempt=3, command=Command("karat", "refresh", "--run-id", "7", "--attempt", "3"))
        )
    assert caught.value.next_command == "karat refresh --run-id 7 --attempt 2"


def test_a_warning_about_a_file_does_not_hide_that_its_job_left_no_golden(world: World) -> None:
    result = world.refresh([job("gpt/a - dev", labels=H100)], [(logs("a"), {member(again="_2nd"): NEW})])
    assert kinds(result, Severity.WARN) == ["not-a-golden"]
    assert kinds(result) == ["artifact-missing"]


def test_jobs_that_fail_on_another_platform_leave_nothing_to_do_on_this_one(world: World) -> None:
    jobs = [job("gpt/a - dev", "success", labels=H100), job("gpt/a - dev", labels=GB200)]
    found = [(logs("a"), {member(): NEW})]
    result = world.refresh(jobs, found, options("only-failing", platforms=("*h100",)))
    assert code(result) == ExitCode.OK
    result = world.refresh(jobs, found, options("only-failing", platforms=("*a100",)))
    assert code(result) == ExitCode.CANNOT_VERIFY


def test_a_metric_that_nothing_has_is_said_beside_one_that_was_taken(world: World) -> None:
    result = world.refresh(
        [job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): NEW})], options(metrics=("lm loss", "num-zeroes"))
    )
    assert [o.state for o in result.outcomes] == [State.WRITTEN]
    assert kinds(result) == ["nothing-compared"]
    assert "num-zeroes" in result.findings[-1].message


@pytest.mark.parametrize("name", ["GPT/A - dev", "gpt/A - dev"])
def test_case_in_names_makes_no_second_golden(world: World, name: str) -> None:
    result = world.refresh([job(name, labels=H100)], [(logs("A"), {member(): NEW})])
    assert [o.path for o in result.outcomes] == [golden_path("a")]
    assert world.read("a") == NEW


def test_case_that_tells_goldens_apart_is_kept_and_else_not_guessed(world: World) -> None:
    world.repository.write(golden_path("A"), OLD)
    world.repository.write(golden_path("Bb"), OLD)
    world.repository.write(golden_path("bB"), OLD)
    world.repository.commit()
    jobs = [job("gpt/A - dev", labels=H100), job("gpt/bb - dev", labels=H100)]
    result = world.refresh(jobs, [(logs("A"), {member(): NEW}), (logs("bb"), {member(): NEW})])
    assert (world.read("a"), world.read("A")) == (OLD, NEW)
    assert kinds(result) == ["identity-incomplete"]


def manifest(**told: object) -> str:
    return json.dumps({"schema": "karat.artifact/1", **told})


def test_of_several_manifests_the_nearest_speaks(world: World) -> None:
    jobs = [job("gpt/a - dev", labels=H100), job("gpt/b - dev", labels=H100)]
    contents = {
        f"x/deep/{member()}": NEW,
        "x/karat-manifest.json": manifest(identity={"case": "b"}),
        f"y/{member()}": golden_text(curves(3)),
        "y/karat-manifest.json": manifest(identity={"case": "a"}),
    }
    result = world.refresh(jobs, [(artifact("tests"), contents)])
    assert code(result) == ExitCode.OK
    assert (world.read("b"), world.read("a")) == (NEW, golden_text(curves(3)))


def test_manifests_that_contradict_each_other_about_a_file_are_not_believed(world: World) -> None:
    contents = {
        member(): NEW,
        "x/karat-manifest.json": manifest(identity={"case": "b"}),
        "y/karat-manifest.json": manifest(identity={"case": "a"}),
    }
    result = world.refresh([], [(artifact("tests"), contents)])
    assert kinds(result) == ["identity-conflict"]
    assert world.status() == []


def test_no_name_leads_among_git_s_own_files(world: World) -> None:
    told = manifest(identity={"model": ".Git", "case": "hooks"})
    result = world.refresh([], [(artifact("tests"), {member(): NEW, "karat-manifest.json": told})])
    assert kinds(result) == ["archive-refused"]


def test_an_artifact_whose_attempt_is_unknown_is_left_with_a_command_that_gets_it(world: World) -> None:
    jobs = [Job(id=str(n), run_id="7", name="gpt/a - dev", attempt=n, conclusion="failure") for n in (1, 2)]
    result = world.refresh(jobs, [(logs("a"), {member(): NEW})])
    (finding,) = [f for f in result.findings if f.severity is Severity.FAIL]
    assert finding.next == "gh run download 7 --name logs-a-7-ab12"


def test_what_to_run_next_is_the_command_that_was_typed(world: World) -> None:
    typed = Command(*["karat", "refresh", "--source", "github", "--run-id", "7", "--scope", "only-failing"])
    result = world.refresh([], [(logs("a"), {member(): NEW})], options("only-failing", command=typed))
    assert [f.next for f in result.findings] == ["karat refresh --source github --run-id 7 --scope all"]


def test_with_scope_all_a_job_that_passed_and_left_nothing_is_missed(world: World) -> None:
    jobs = [job("gpt/a - dev", "success", labels=H100), job("gpt/b - dev", labels=H100)]
    result = world.refresh(jobs, [(logs("b"), {member(): NEW})])
    assert kinds(result) == ["artifact-missing"]
    skipped = [job("gpt/a - dev", "skipped", labels=H100), jobs[1]]
    assert kinds(world.refresh(skipped, [(logs("b"), {member(): NEW})])) == []


def test_jobs_of_values_that_are_not_wanted_are_not_missed(world: World) -> None:
    opts = options()
    settings = msgspec.structs.replace(opts.settings, values={"case": ("b",)})
    jobs = [job("gpt/a - dev", labels=H100), job("gpt/b - dev", labels=H100)]
    result = world.refresh(jobs, [(logs("b"), {member(): NEW})], msgspec.structs.replace(opts, settings=settings))
    assert kinds(result) == []


@pytest.mark.parametrize(
    "words",
    [
        {"source": "folder", "path": "x", "run_id": "7"},
        {"source": "github", "pipeline_id": "7"},
        {"source": "s3://b/x", "attempt": 2},
        {"source": "gitlab", "path": "x"},
        {"source": None},
    ],
)
def test_words_that_a_source_would_ignore_are_mistakes(words: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        check_options(SourceOptions(**words))


def test_a_link_is_never_read_as_what_stands(world: World, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    link = world.repository.root / golden_path("a")
    link.unlink()
    link.symlink_to(tmp_path / "secret")
    assert read_golden(world.repository.root, golden_path("a")) is None


def test_a_dry_run_speaks_of_what_it_would_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    opts = options(dry_run=True, command=Command("karat", "refresh", "x", "--dry-run"))
    result = world.refresh([job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): NEW})], opts)
    text = "\n".join("".join(piece for piece, _ in line) for line in lines(result))
    assert text.startswith("1 of 1 golden to be written, 1 of them needs a look")
    assert result.to_dict()["answer"] == text.splitlines()[0]
    assert next_command(result) == "karat refresh x"
    monkeypatch.setenv("CI", "1")
    assert next_command(result) == "karat refresh x --write"


def test_a_metric_that_nothing_has_is_no_reason_to_run_the_job_again(world: World) -> None:
    result = world.refresh(
        [job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): NEW})], options(metrics=("num-zeroes",))
    )
    (found,) = result.outcomes[0].findings
    assert found.message.endswith("only lm loss, num-zeros, mem-allocated-bytes, iteration-time")
    assert found.next == "karat refresh --help"


def test_what_left_nothing_to_do_is_named(world: World) -> None:
    for narrowed, words in (
        ({"only": ("nothere", "x/*")}, "for --only nothere, --only x/* in"),
        ({"platforms": ("*a100",)}, "for --platform *a100 in"),
    ):
        result = world.refresh([job("gpt/a - dev", labels=H100)], [(logs("a"), {member(): NEW})], options(**narrowed))
        (found,) = result.findings
        assert words in found.message
        assert found.next == "karat refresh --help"
