"""PyTorch's CI on the forge: sharded benchmark jobs with marks and machines, reports in a bucket or among the artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from factories.archives import zipped
from factories.commands import Outcome, karat_here
from factories.forge import Forge
from factories.forge_github import GitHubJob, GitHubRun
from factories.repositories import Repository

SHA = "2" * 40
REPO = "pytorch/pytorch"
FOLDER = "benchmarks/dynamo/ci_expected_accuracy"
HEADER = "dev,name,batch_size,accuracy,calls_captured,graph_breaks\n"
CUDA, ROCM, XPU, ARM = (
    "linux.g5.4xlarge.nvidia.gpu",
    "linux.rocm.gpu.mi300.2",
    "linux.idc.xpu",
    "linux.arm64.m7g.metal",
)
CONFIGS = {
    CUDA: "cuda12.8-py3.10-gcc9-sm86",
    ROCM: "rocm-periodic-dynamo-benchmarks-test",
    XPU: "linux-jammy-xpu-n-py3.10",
    ARM: "linux-jammy-aarch64-py3.10-inductor",
}
BESIDE = {
    "test/test-reports/python-pytest/inductor.test_x/inductor.test_x-1.xml": "<testsuites/>",
    "test/test-reports/training_timm_models_graph_breaks.csv": "graph break,count\nfoo,1\n",
    "test/test-reports/training_timm_models_graph_break_deduped.csv": "graph break\nfoo\n",
    "test/test-reports/inference_timm_models_performance.csv": "dev,name,speedup\ncuda,a,1.2\n",
    "test/test-reports/inductor_with_cudagraphs_timm_models_amp_training_cuda_performance.csv": "name,speedup\na,1\n",
}
"""What an archive of reports holds beside the table that is wanted."""


def golden(*rows: str) -> str:
    """An expected table, with the padding that the repository's have."""
    return "\n\n\n\n".join(["name,accuracy,graph_breaks", *rows]) + "\n"


class PyTorchCi:
    """A commit with runs of the workflows that make the expected tables."""

    def __init__(self, forge: Forge) -> None:
        self.forge = forge
        self.runs: dict[str, GitHubRun] = {}

    def run(self, workflow: str = "inductor") -> GitHubRun:
        if workflow not in self.runs:
            self.runs[workflow] = self.forge.github.run(REPO, sha=SHA, workflow=workflow, attempts=2)
        return self.runs[workflow]

    def shard(
        self,
        suite: str,
        number: int,
        of: int,
        rows: Sequence[str],
        *marks: str,
        machine: str = CUDA,
        config: str | None = None,
        attempt: int = 1,
        conclusion: str = "success",
        phase: str = "training",
        workflow: str = "inductor",
        listed: bool = False,
        more: Mapping[str, str] | None = None,
    ) -> GitHubJob:
        """A job and its reports: in the bucket, or `listed` among the run's artifacts where the bucket took none."""
        run = self.run(workflow)
        words = ", ".join([suite, str(number), str(of), machine, *marks])
        name = f"{config or CONFIGS[machine]} / test ({words})"
        job = run.job(name, attempt=attempt, conclusion=conclusion, labels=[machine])
        sub = suite.rpartition("_")[2].replace("timm", "timm_models")
        device = "xpu" if machine == XPU else "cpu" if machine == ARM else "cuda"
        table = HEADER + "".join(f"{device},{row}\n" for row in rows)
        members = {**({f"test/test-reports/{phase}_{sub}.csv": table} if rows else {}), **(more or {})}
        suffix = f"test-{suite}-{number}-{of}-{machine}_{job.id}.zip"
        if listed:
            inside = {path.removeprefix("test/"): text for path, text in members.items()}
            created = run.created + attempt * 3600 + 500
            run.artifact(f"test-reports-runattempt{attempt}-{suffix}", inside, created=created)
        elif members:
            self.forge.bucket.put(f"/{REPO}/{run.id}/{attempt}/artifact/test-reports-{suffix}", zipped(members))
        return job


def configured(repository: Repository, forge: Forge, tables: Mapping[str, str]) -> Repository:
    """A tree with these expected tables, whose reports lie in the forge's bucket."""
    for name, text in tables.items():
        repository.write(f"{FOLDER}/{name}.csv", text)
    name = "test-reports-test-{suite}-{shard}-{num_shards}-{machine}_{job_id}.zip"
    address = f"{forge.bucket.host.url}/{{repo}}/{{run_id}}/{{attempt}}/artifact/{name}"
    repository.write("karat.toml", f'preset = "pytorch-dynamo"\n\n[refresh]\nartifact_url = "{address}"\n')
    repository.commit()
    return repository


def refresh(forge: Forge, tree: Repository, cache: Path, *words: str, scope: str = "all") -> Outcome:
    return karat_here(
        "refresh", "--source", "github", "--sha", SHA, "--scope", scope, *words,
        cwd=tree.root, GITHUB_API_URL=forge.github_url, GITHUB_TOKEN=forge.github.token, KARAT_CACHE_DIR=str(cache),
    )  # fmt: skip
