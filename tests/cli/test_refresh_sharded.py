"""The second seed document, end to end: tables of a commit from sharded jobs, artifacts kept elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from factories.archives import zipped
from factories.commands import Outcome, karat
from factories.forge import Forge
from factories.repositories import Repository

SHA = "2" * 40
FOLDER = "benchmarks/dynamo/ci_expected_accuracy"
HEADER = "dev,name,batch_size,accuracy,calls_captured,graph_breaks\n"
PADDED = "name,accuracy,graph_breaks\n\n\n\na,pass,0\n\n\n\nb,pass,3\n\n\n\nc,pass,1\n"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's word
        pass


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A plain HTTP host that is not the forge: what it is asked for must come without a token."""
    folder = tmp_path / "bucket"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def tree(repository: Repository, bucket: tuple[Path, str]) -> Repository:
    for suite in ("inductor_timm", "inductor_huggingface"):
        repository.write(f"{FOLDER}/{suite}_training.csv", PADDED)
    name = "test-reports-test-{suite}-{shard}-{num_shards}-{machine}_{job_id}.zip"
    address = f"{bucket[1]}/{{repo}}/{{run_id}}/{{attempt}}/artifact/{name}"
    repository.write("karat.toml", f'preset = "pytorch-dynamo"\n\n[refresh]\nartifact_url = "{address}"\n')
    repository.commit()
    return repository


def rows(*lines: str) -> str:
    return HEADER + "".join(f"cuda,{line}\n" for line in lines)


class Commit:
    """A commit whose inductor run has sharded jobs, with attempts."""

    def __init__(self, forge: Forge, folder: Path) -> None:
        self.run = forge.github.run("pytorch/pytorch", sha=SHA, workflow="inductor", attempts=2)
        self.folder = folder

    def shard(
        self, suite: str, number: int, of: int, *lines: str, attempt: int = 1, conclusion: str = "success", member: str
    ) -> None:
        name = f"cuda12.8-py3.10-gcc9-sm86 / test ({suite}, {number}, {of}, linux.g5.4xlarge)"
        job = self.run.job(name, attempt=attempt, conclusion=conclusion)
        archive = f"test-reports-test-{suite}-{number}-{of}-linux.g5.4xlarge_{job.id}.zip"
        path = self.folder / f"pytorch/pytorch/{self.run.id}/{attempt}/artifact" / archive
        path.parent.mkdir(parents=True, exist_ok=True)
        if lines:
            path.write_bytes(zipped({f"test/test-reports/{member}": rows(*lines), "junit.xml": "<x/>"}))


def refresh(forge: Forge, tree: Repository, cache: Path, *words: str) -> Outcome:
    return karat(
        "refresh",
        "--source",
        "github",
        "--sha",
        SHA,
        "--scope",
        "all",
        *words,
        cwd=tree.root,
        GITHUB_API_URL=forge.github_url,
        GITHUB_TOKEN=forge.github.token,
        KARAT_CACHE_DIR=str(cache),
    )


@pytest.mark.slow
def test_tables_of_a_commit_with_a_retry_a_rename_and_a_missing_shard(
    forge: Forge, tree: Repository, bucket: tuple[Path, str], tmp_path: Path
) -> None:
    commit = Commit(forge, bucket[0])
    timm = "training_timm_models.csv"
    commit.shard("inductor_timm", 1, 2, "a,4,pass,10,2", "b,4,pass,9,", member=timm)
    commit.shard("inductor_timm", 2, 2, "c,4,fail_to_run,1,0", conclusion="failure", member=timm)
    commit.shard("inductor_timm", 2, 2, "c,4,pass,12,5.0", attempt=2, member=timm)
    hf = "training_huggingface.csv"
    commit.shard("inductor_huggingface", 1, 2, "a,4,pass,10,2", member=hf)
    commit.shard("inductor_huggingface", 2, 2, member=hf)  # the job ran, its archive is gone
    commit.shard("default", 1, 1, "x,1,pass,1,1", member="other.csv")
    forge.github.run("pytorch/pytorch", sha=SHA, workflow="lint").job("lintrunner")
    done = refresh(forge, tree, tmp_path / "cache")
    assert (tree.root / FOLDER / "inductor_timm_training.csv").read_text() == (
        "name,accuracy,graph_breaks\n\n\n\na,pass,2\n\n\n\nb,pass,0\n\n\n\nc,pass,5\n"
    )
    assert (tree.root / FOLDER / "inductor_huggingface_training.csv").read_text() == PADDED
    assert done.code == 1, done.err
    assert "missing-shard" in done.out
    assert "1 of 2 shards are missing from the new results (2)" in done.out


@pytest.mark.slow
def test_a_removed_model_is_removed_only_with_prune(
    forge: Forge, tree: Repository, bucket: tuple[Path, str], tmp_path: Path
) -> None:
    commit = Commit(forge, bucket[0])
    commit.shard("inductor_timm", 1, 1, "a,4,pass,10,0", "c,4,pass,9,1", member="training_timm_models.csv")
    refused = refresh(forge, tree, tmp_path / "cache")
    assert refused.code == 1
    assert "1 of 3 rows are gone: b; if that is meant, --prune" in refused.out
    assert (tree.root / FOLDER / "inductor_timm_training.csv").read_text() == PADDED
    assert refresh(forge, tree, tmp_path / "cache", "--prune").code == 0
    assert (tree.root / FOLDER / "inductor_timm_training.csv").read_text() == (
        "name,accuracy,graph_breaks\n\n\n\na,pass,0\n\n\n\nc,pass,1\n"
    )
