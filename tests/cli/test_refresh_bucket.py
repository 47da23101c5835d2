"""`karat refresh --source s3://…` as a user runs it, against a real S3-speaking server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from factories.archives import zipped
from factories.commands import Outcome, karat
from factories.repositories import Repository, curves, golden_path, golden_text
from factories.s3 import S3
from karat.goldens.provenance import read_lock

OLD, NEW = golden_text(curves(1)), golden_text(curves(2))
TABLE = "benchmarks/dynamo/ci_expected_accuracy/inductor_timm_training.csv"
HEADER = "dev,name,batch_size,accuracy,graph_breaks\n"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with S3() as server:
        yield server


def refresh(s3: S3, tree: Repository, cache: Path, url: str, *words: str) -> Outcome:
    return karat("refresh", "--source", url, *words, cwd=tree.root, KARAT_CACHE_DIR=str(cache), **s3.environment)


@pytest.mark.slow
def test_goldens_with_manifests(s3: S3, repository: Repository, tmp_path: Path) -> None:
    for case in "ab":
        repository.write(golden_path(case), OLD)
    repository.write("karat.toml", 'preset = "megatron-lm"\n')
    repository.commit()
    told = {"schema": "karat.artifact/1", "run_id": 7, "conclusion": "failure", "commit": "c0ffee"}
    objects = {}
    for case, end in (("a", "failure"), ("b", "success")):
        identity = {"model": "gpt", "case": case}
        manifest = json.dumps({**told, "conclusion": end, "identity": identity})
        members = {"golden_values_dev_dgx_h100.json": NEW, "karat-manifest.json": manifest}
        objects[f"ci/7/logs-{case}-7-0a.zip"] = zipped({**members, "n.bin": "x" * 99_999})
    url = f"s3://{s3.bucket(objects)}/ci/7"
    done = refresh(s3, repository, tmp_path / "cache", url, "--scope", "only-failing")
    assert done.code == 0, done.err + done.out
    assert (repository.root / golden_path("a")).read_text() == NEW
    assert (repository.root / golden_path("b")).read_text() == OLD
    lock = read_lock(repository.root / "tests/functional_tests/test_cases/goldens.lock.json")
    (entry,) = lock.values()
    assert (entry.source, entry.run, entry.commit) == ("s3", "7", "c0ffee")


def shard(number: int, *rows: str) -> bytes:
    text = HEADER + "".join(f"cuda,{row}\n" for row in rows)
    return zipped({"test/test-reports/training_timm_models.csv": text, "junit.xml": f"<x n='{number}'/>"})


@pytest.mark.slow
def test_sharded_tables_with_a_second_attempt(s3: S3, repository: Repository, tmp_path: Path) -> None:
    repository.write(TABLE, "name,accuracy,graph_breaks\n\n\n\na,pass,0\n\n\n\nb,pass,3\n")
    repository.write("karat.toml", 'preset = "pytorch-dynamo"\n')
    repository.commit()
    name = "artifact/test-reports-test-inductor_timm-{}-2-linux.g5_{}.zip"
    objects = {
        f"777/1/{name.format(1, 11)}": shard(1, "a,4,pass,2.0"),
        f"777/1/{name.format(2, 12)}": shard(2, "b,4,fail_to_run,0"),
        f"777/2/{name.format(2, 22)}": shard(2, "b,4,pass,4"),
    }
    url = f"s3://{s3.bucket(objects)}"
    done = refresh(s3, repository, tmp_path / "cache", url, "--scope", "all")
    assert done.code == 0, done.err + done.out
    assert (repository.root / TABLE).read_text() == ("name,accuracy,graph_breaks\n\n\n\na,pass,2\n\n\n\nb,pass,4\n")
    repository.git("checkout", "--quiet", "--", TABLE)
    done = refresh(s3, repository, tmp_path / "cache", f"{url}/777/2", "--scope", "all")
    assert done.code == 1
    assert "1 of 2 shards are missing from the new results (1)" in done.out


@pytest.mark.slow
@pytest.mark.parametrize("other", ["778/1/artifact/{}_22.zip", "777/1/artifact/{}_22.zip"])
def test_two_runs_or_two_of_one_attempt_are_no_attempts_of_one_job(
    s3: S3, repository: Repository, tmp_path: Path, other: str
) -> None:
    repository.write(TABLE, "name,accuracy,graph_breaks\na,pass,0\n")
    repository.write("karat.toml", 'preset = "pytorch-dynamo"\n')
    repository.commit()
    name = "test-reports-test-inductor_timm-1-1-linux.g5"
    objects = {f"777/1/artifact/{name}_11.zip": shard(1, "a,4,pass,1"), other.format(name): shard(1, "a,4,pass,2")}
    done = refresh(s3, repository, tmp_path / "c", f"s3://{s3.bucket(objects)}", "--scope", "all")
    assert done.code == 1, done.out
    assert "claimed-twice" in done.out
    assert "a,pass,0" in (repository.root / TABLE).read_text()
