"""Sharded tables, end to end: the second seed document with its known limitations gone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from factories.listed import Listed
from factories.repositories import Repository
from karat.config import load
from karat.findings import ExitCode, Severity, exit_code
from karat.refreshes.jobs import RefreshOptions
from karat.refreshes.refresh import refresh
from karat.refreshes.report import RefreshReport, State
from karat.sources.source import Artifact, CiJob as Job, Fetched, Progress

TABLE = "benchmarks/dynamo/ci_expected_accuracy/inductor_timm_training.csv"
HEADER = "dev,name,batch_size,accuracy,graph_breaks\n"


def options(scope: str = "all", **more: object) -> RefreshOptions:
    config = load(Path("/"), preset="pytorch-dynamo")
    return RefreshOptions(
        scope=scope,
        settings=config.refresh,
        globs=config.paths,
        cases=config.cases,
        rules=config.rule_book(),
        **more,  # type: ignore[arg-type]
    )


def job(shard: int, conclusion: str = "success", *, of: int = 2, attempt: int = 1, suite: str = "inductor_timm") -> Job:
    return Job(
        id=f"{shard}{attempt}" if suite.endswith("timm") else f"9{shard}",
        run_id="7",
        attempt=attempt,
        conclusion=conclusion,
        name=f"linux-cuda / test ({suite}, {shard}, {of}, linux.g5)",
        started=1000.0 * attempt,
        completed=1000.0 * attempt + 500,
    )


def rows(*lines: str) -> str:
    return HEADER + "".join(f"cuda,{line}\n" for line in lines)


class World:
    """A repository with one padded table, and a CI run whose artifacts lie at a URL."""

    def __init__(self, repository: Repository, folder: Path) -> None:
        self.repository, self.folder = repository, folder
        repository.write(TABLE, "name,accuracy,graph_breaks\n\n\n\na,pass,0\n\n\n\nb,pass,3\n")
        repository.commit()

    def refresh(self, jobs: Sequence[Job], shards: dict[str, str], opts: RefreshOptions | None = None) -> RefreshReport:
        """`shards`: job id → its training table; a job without one left no artifact."""
        found = []
        for one in jobs:
            if one.id in shards:
                name = "x"
                member = "test/test-reports/training_timm_models.csv"
                contents = {member: shards[one.id], "test/test-reports/other.csv": "a,b\n1,2\n"}
                found.append((Artifact(id=f"url-{one.id}", name=name), contents))
        return refresh(Listed(self.folder, jobs=jobs, artifacts=found), self.repository.root, opts or options())

    def read(self, name: str = TABLE) -> str:
        return (self.repository.root / name).read_text()


@pytest.fixture
def world(repository: Repository, tmp_path: Path) -> World:
    return World(repository, tmp_path / "cache")


def fails(result: RefreshReport) -> list[str]:
    return [f.kind for f in result.all_findings() if f.severity is Severity.FAIL]


def test_a_table_is_put_together_and_keeps_its_padding(world: World) -> None:
    result = world.refresh([job(1), job(2)], {"11": rows("a,4,pass,"), "21": rows("b,8,pass,2.0")})
    assert world.read() == "name,accuracy,graph_breaks\n\n\n\na,pass,0\n\n\n\nb,pass,2\n"
    assert exit_code(result.all_findings()) == ExitCode.OK


def test_a_new_table_is_padded_as_the_preset_says(world: World) -> None:
    jobs = [job(1, suite="cpu_inductor_timm", of=1)]
    world.refresh(jobs, {"11": rows("a,4,pass,1", "b,4,fail_to_run,")})
    new = TABLE.replace("inductor_timm", "cpu_inductor_timm")
    assert world.read(new) == "name,accuracy,graph_breaks\n\n\n\na,pass,1\n\n\n\nb,fail_to_run,0\n"


def test_a_missing_shard_refuses_the_table(world: World) -> None:
    old = world.read()
    result = world.refresh([job(1), job(2)], {"11": rows("a,4,pass,9")})
    assert [o.state for o in result.outcomes] == [State.REFUSED]
    assert "missing-shard" in fails(result)
    assert world.read() == old


def test_accept_incomplete_keeps_the_rows_that_did_not_come(world: World) -> None:
    result = world.refresh([job(1), job(2)], {"11": rows("a,4,pass,9")}, options(accept_incomplete=True))
    assert world.read() == "name,accuracy,graph_breaks\n\n\n\na,pass,9\n\n\n\nb,pass,3\n"
    assert result.outcomes[0].provenance is not None
    assert result.outcomes[0].provenance.accepted


def test_a_vanished_model_refuses_the_table_and_prune_removes_it(world: World) -> None:
    jobs, shards = [job(1, of=1)], {"11": rows("a,4,pass,0")}
    result = world.refresh(jobs, shards)
    (finding,) = [f for f in result.all_findings() if f.kind == "lost-rows"]
    assert finding.severity is Severity.FAIL
    assert finding.message.endswith("1 of 2 rows is gone: b; if that is meant, --prune")
    assert "b,pass,3" in world.read()
    result = world.refresh(jobs, shards, options(prune=True))
    assert fails(result) == []
    assert world.read() == "name,accuracy,graph_breaks\n\n\n\na,pass,0\n"


def test_new_models_are_named(world: World) -> None:
    result = world.refresh([job(1, of=1)], {"11": rows("a,4,pass,0", "b,4,pass,3", "c,4,pass,1")})
    (finding,) = [f for f in result.all_findings() if f.kind == "gained-rows"]
    assert "c" in finding.message
    assert world.read().endswith("\n\n\n\nc,pass,1\n")


def test_a_model_in_two_shards_refuses_the_table(world: World) -> None:
    result = world.refresh([job(1), job(2)], {"11": rows("a,4,pass,0"), "21": rows("a,4,pass,1", "b,4,pass,3")})
    assert "duplicate-row" in fails(result)
    assert "b,pass,3" in world.read()


def test_the_newest_attempt_of_each_shard_counts(world: World) -> None:
    jobs = [job(2, "success", attempt=2), job(1), job(2, "failure", attempt=1)]
    shards = {"11": rows("a,4,pass,5"), "21": rows("b,4,fail_to_run,0"), "22": rows("b,4,pass,6")}
    world.refresh(jobs, shards)
    assert world.read() == "name,accuracy,graph_breaks\n\n\n\na,pass,5\n\n\n\nb,pass,6\n"


def test_only_failing_takes_all_shards_of_a_table_with_a_failed_one(world: World) -> None:
    jobs = [job(1, "success"), job(2, "failure"), job(1, "success", suite="inductor_huggingface", of=1)]
    shards = {"11": rows("a,4,pass,5"), "21": rows("b,4,pass,6")}
    result = world.refresh(jobs, shards, options("only-failing"))
    assert [o.path for o in result.outcomes] == [TABLE]
    assert result.outcomes[0].state is State.WRITTEN


def test_other_suites_and_phases_are_left_alone(world: World) -> None:
    result = world.refresh([job(1, suite="default", of=1)], {"11": rows("a,4,pass,5")})
    assert result.outcomes == ()


TWO = {"11": rows("a,4,pass,"), "21": rows("b,8,pass,2.0")}


def test_shards_of_two_configurations_make_no_table(world: World) -> None:
    """Each configuration lacks a shard; together they would look whole."""
    other = msgspec.structs.replace(job(2), name="linux-cuda13 / test (inductor_timm, 2, 2, linux.g5)")
    result = world.refresh([job(1), other], TWO)
    assert [o.state for o in result.outcomes] == [State.REFUSED]
    assert "linux-cuda, linux-cuda13" in result.outcomes[0].findings[0].message


def test_one_column_alone_and_rows_that_have_no_place_in_it(world: World) -> None:
    shards = {"11": rows("a,4,fail,7"), "21": rows("b,8,fail,2.0", "c,1,pass,0")}
    result = world.refresh([job(1), job(2)], shards, options(metrics=("graph_breaks",)))
    assert world.read() == "name,accuracy,graph_breaks\n\n\n\na,pass,7\n\n\n\nb,pass,2\n"
    told = [f for f in result.all_findings() if f.kind == "gained-rows"]
    assert [(f.severity, "c" in f.message) for f in told] == [(Severity.WARN, True)]


def test_a_column_that_was_asked_for_and_did_not_come_is_refused(world: World) -> None:
    plain = options()
    assert plain.settings.tables is not None
    tables = msgspec.structs.replace(plain.settings.tables, columns=("name", "accuracy"))
    settings = msgspec.structs.replace(plain.settings, tables=tables)
    opts = msgspec.structs.replace(plain, settings=settings, metrics=("accuracy", "graph_breaks"))
    result = world.refresh([job(1), job(2)], TWO, opts)
    assert fails(result) == ["lost-metric"]
    assert "missing from the new results: graph_breaks" in result.outcomes[0].findings[0].message


def test_rows_that_did_not_come_stay_also_where_a_column_is_new(world: World) -> None:
    plain = options(accept_incomplete=True)
    assert plain.settings.tables is not None
    columns = ("name", "accuracy", "speedup", "graph_breaks")
    tables = msgspec.structs.replace(plain.settings.tables, columns=columns)
    opts = msgspec.structs.replace(plain, settings=msgspec.structs.replace(plain.settings, tables=tables))
    world.refresh([job(1), job(2)], {"11": "name,accuracy,speedup,graph_breaks\na,pass,1.5,\n"}, opts)
    written = [line for line in world.read().split("\n") if line]
    assert written == ["name,accuracy,speedup,graph_breaks", "a,pass,1.5,0", "b,pass,,3"]


@pytest.mark.parametrize("told", [{"shard": "x"}, {"num_shards": "9" * 200}, {"shard": "²"}])
def test_a_manifest_that_makes_no_sense_of_a_shard_refuses_its_table(world: World, told: dict[str, str]) -> None:
    """Where no name tells it; where one does, the two contradict each other."""
    known = {"suite": "inductor_timm", "shard": "1", "num_shards": "1", **told}
    text = json.dumps({"schema": "karat.artifact/1", "identity": known})
    contents = {"test/test-reports/training_timm_models.csv": TWO["11"], "karat-manifest.json": text}
    settings = msgspec.structs.replace(options().settings, artifacts=(), artifact_url=None)
    source = Listed(world.folder, artifacts=[(Artifact(id="x", name="x"), contents)])
    result = refresh(source, world.repository.root, msgspec.structs.replace(options(), settings=settings))
    assert [o.state for o in result.outcomes] == [State.REFUSED]
    assert fails(result) == ["identity-incomplete"]
    source = Listed(world.folder, jobs=[job(1)], artifacts=[(Artifact(id="x", name="x", job_id="11"), contents)])
    result = refresh(source, world.repository.root, msgspec.structs.replace(options(), settings=settings))
    assert result.outcomes == ()
    assert fails(result) == ["identity-conflict"]


def test_a_table_says_the_newest_attempt_and_that_a_shard_s_job_was_stopped(world: World) -> None:
    jobs = [job(1), job(2, "failure"), job(2, "timed_out", attempt=2)]
    shards = {"11": rows("a,4,pass,5"), "21": rows("b,4,pass,0"), "22": rows("b,4,pass,6")}
    result = world.refresh(jobs, shards)
    (outcome,) = result.outcomes
    assert outcome.state is State.WRITTEN
    assert outcome.provenance is not None
    assert outcome.provenance.attempt == 2
    assert "from-unfinished-job" in [f.kind for f in outcome.findings]


def test_a_shard_that_cannot_be_read_is_named_and_no_other(world: World) -> None:
    """As when the disk with the cache fails between the download and the reading."""

    class Failing(Listed):
        def fetch(
            self, artifacts: Sequence[Artifact], wanted: Callable[[str], bool], progress: Progress | None = None
        ) -> Iterator[Fetched]:
            for fetched in super().fetch(artifacts, wanted, progress):
                if fetched.artifact.id == "url-21":
                    for file in fetched.members.values():
                        file.unlink()
                yield fetched

    member = "test/test-reports/training_timm_models.csv"
    found = [(Artifact(id=f"url-{one.id}", name=f"shard-{one.id}"), {member: TWO[one.id]}) for one in (job(1), job(2))]
    source = Failing(world.folder, jobs=[job(1), job(2)], artifacts=found)
    result = refresh(source, world.repository.root, options())
    (finding,) = (f for o in result.outcomes for f in o.findings)
    assert finding.kind == "cannot-read"
    assert "url-21" in str(finding.next)
    assert exit_code(result.all_findings()) is ExitCode.CANNOT_VERIFY
