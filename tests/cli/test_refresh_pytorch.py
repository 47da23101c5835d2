"""PyTorch's CI as it is: marks behind a job's machine, platforms, tables beside the wanted one, a bucket nobody lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.archives import zipped
from factories.commands import karat_here
from factories.forge import Forge
from factories.pytorch_ci import ARM, BESIDE, CUDA, FOLDER, HEADER, ROCM, XPU, PyTorchCi, configured, golden, refresh
from factories.repositories import Repository

OLD = golden("a,pass,0", "b,pass,3")
NEW = golden("a,pass,1", "b,pass,4")
ONE, TWO = ("a,4,pass,10,1",), ("b,4,pass,9,4.0",)
TIMM = "inductor_timm_training"


@pytest.fixture
def ci(forge: Forge) -> PyTorchCi:
    return PyTorchCi(forge)


@pytest.fixture
def tree(repository: Repository, forge: Forge) -> Repository:
    return configured(repository, forge, {TIMM: OLD, f"rocm/{TIMM}": OLD})


def read(tree: Repository, name: str = TIMM) -> str:
    return (tree.root / FOLDER / f"{name}.csv").read_text()


def both(ci: PyTorchCi, *marks: str, machine: str = CUDA, listed: bool = False) -> None:
    for number, rows in ((1, ONE), (2, TWO)):
        ci.shard("inductor_timm", number, 2, rows, *marks, machine=machine, listed=listed, more=BESIDE)


def tables(tree: Repository) -> list[str]:
    return sorted(str(path.relative_to(tree.root / FOLDER)) for path in (tree.root / FOLDER).rglob("*.csv"))


def test_an_unstable_job_s_table_counts_as_any_other(
    ci: PyTorchCi, forge: Forge, tree: Repository, tmp_path: Path
) -> None:
    both(ci, "unstable")
    done = refresh(forge, tree, tmp_path / "cache")
    assert (done.code, read(tree)) == (0, NEW), done.out


@pytest.mark.parametrize("mark", ["mem_leak_check", "rerun_disabled_tests"])
@pytest.mark.parametrize("listed", [False, True])
def test_a_job_that_checks_something_else_never_gives_the_table(
    ci: PyTorchCi, forge: Forge, tree: Repository, tmp_path: Path, mark: str, *, listed: bool
) -> None:
    """Neither beside the plain job, nor alone, nor by failing where only failing jobs are asked for."""
    both(ci)
    other = ("a,4,fail_to_run,0,99",)
    ci.shard("inductor_timm", 1, 2, other, mark, conclusion="failure", listed=listed)
    ci.shard("inductor_timm", 2, 2, other, mark, "unstable", attempt=2, listed=listed)
    ci.shard("inductor_huggingface", 1, 1, other, mark, listed=listed)
    done = refresh(forge, tree, tmp_path / "cache", scope="only-failing")
    assert (done.code, read(tree)) == (0, OLD), done.out
    assert "no job failed" in done.out
    done = refresh(forge, tree, tmp_path / "cache")
    assert (done.code, read(tree)) == (0, NEW), done.out
    assert tables(tree) == [f"{TIMM}.csv", f"rocm/{TIMM}.csv"]
    assert "of jobs that [refresh] skip names" in done.out


def test_cuda_and_rocm_run_one_suite_and_each_has_its_table(
    ci: PyTorchCi, forge: Forge, tree: Repository, tmp_path: Path
) -> None:
    both(ci)
    for number, rows in ((1, ("a,4,fail_accuracy,9,7",)), (2, TWO)):
        ci.shard("inductor_timm", number, 2, rows, machine=ROCM, workflow="inductor-periodic", listed=True)
    done = refresh(forge, tree, tmp_path / "cache")
    assert done.code == 0, done.out
    assert read(tree) == NEW
    assert read(tree, f"rocm/{TIMM}") == golden("a,fail_accuracy,7", "b,pass,4")


@pytest.mark.parametrize(("glob", "texts"), [("*cuda*", (NEW, OLD)), ("rocm", (OLD, NEW)), ("*", (NEW, NEW))])
def test_platform_narrows(
    ci: PyTorchCi, forge: Forge, tree: Repository, tmp_path: Path, glob: str, texts: tuple[str, str]
) -> None:
    both(ci)
    both(ci, machine=ROCM)
    done = refresh(forge, tree, tmp_path / "cache", "--platform", glob)
    assert (done.code, (read(tree), read(tree, f"rocm/{TIMM}"))) == (0, texts), done.out


@pytest.mark.parametrize(("machine", "folder"), [(XPU, "xpu"), (ARM, "aarch64")])
def test_machines_without_tables_of_their_own_touch_nobody_else_s(
    ci: PyTorchCi, forge: Forge, tree: Repository, tmp_path: Path, machine: str, folder: str
) -> None:
    both(ci, machine=machine)
    done = refresh(forge, tree, tmp_path / "cache")
    assert tables(tree) == [f"{TIMM}.csv", f"rocm/{TIMM}.csv"]
    assert read(tree) == OLD
    assert f"there is no golden at {FOLDER}/{folder}/{TIMM}.csv" in done.out
    tree.write(f"{FOLDER}/{folder}/{TIMM}.csv", OLD)
    tree.commit()
    done = refresh(forge, tree, tmp_path / "cache")
    assert (done.code, read(tree), read(tree, f"{folder}/{TIMM}")) == (0, OLD, NEW), done.out


@pytest.mark.parametrize("machine", ["linux.aws.a100", "linux.dgx.b200", "mt-l-x86iavx512-11-125-a100"])
def test_machines_by_their_names_alone(
    ci: PyTorchCi, forge: Forge, tree: Repository, tmp_path: Path, machine: str
) -> None:
    for number, rows in ((1, ONE), (2, TWO)):
        config = "inductor-test / periodic-dynamo-benchmarks-test"
        ci.shard("inductor_timm", number, 2, rows, "oncall:pt2", "unstable", machine=machine, config=config)
    done = refresh(forge, tree, tmp_path / "cache", "--platform", "cuda")
    assert (done.code, read(tree)) == (0, NEW), done.out


def test_reports_that_the_bucket_did_not_take_are_found_among_the_artifacts(
    ci: PyTorchCi, forge: Forge, tree: Repository, tmp_path: Path
) -> None:
    ci.shard("inductor_timm", 1, 2, ONE, more=BESIDE)
    ci.shard("inductor_timm", 2, 2, ("b,4,fail_to_run,9,0",), conclusion="failure", listed=True)
    ci.shard("inductor_timm", 2, 2, TWO, attempt=2, listed=True)
    done = refresh(forge, tree, tmp_path / "cache")
    assert (done.code, read(tree)) == (0, NEW), done.out
    asked = [request.path for request in forge.seen(host="bucket")]
    assert len(asked) == 1, "the bucket is asked only for what is not listed"
    assert not any("authorization" in request.headers for request in forge.seen(host="bucket"))


def test_a_report_that_nobody_keeps_is_missing_and_its_job_may_run_again(
    ci: PyTorchCi, forge: Forge, tree: Repository, tmp_path: Path
) -> None:
    """S3 forbids what is not there to whoever may not list it: no token would help."""
    ci.shard("inductor_timm", 1, 2, ONE)
    job = ci.shard("inductor_timm", 2, 2, ())
    done = refresh(forge, tree, tmp_path / "cache")
    assert (done.code, read(tree)) == (1, OLD), done.out
    assert "artifact-missing" in done.out
    host = "127.0.0.1/pytorch/pytorch"
    assert done.out.count(f"gh run rerun --job {job.id} --repo {host}") == 2, "the archive, and the table without it"
    assert done.out.count("gh run rerun") == 2
    assert "forbidden" not in done.out
    assert "login" not in done.out


def test_other_workflows_of_the_commit_are_not_looked_into(
    ci: PyTorchCi, forge: Forge, tree: Repository, tmp_path: Path
) -> None:
    both(ci)
    for workflow in ("inductor-cu124", "pull"):
        ci.shard("inductor_timm", 1, 1, ("a,4,fail_to_run,0,0",), workflow=workflow)
    done = refresh(forge, tree, tmp_path / "cache")
    assert (done.code, read(tree)) == (0, NEW), done.out
    pull = ci.run("pull").id
    assert forge.seen(f"/runs/{pull}/jobs") == []
    done = refresh(forge, tree, tmp_path / "cache", "--workflow", "inductor-cu124", "--dry-run")
    assert "rows is gone" in done.out


def test_a_folder_of_reports_tells_the_platform_by_the_machine(tree: Repository, tmp_path: Path) -> None:
    for number, row in ((1, ONE[0]), (2, TWO[0])):
        name = f"test-reports-test-inductor_timm-{number}-2-{ROCM}_{number}.zip"
        text = f"{HEADER}cuda,{row}\n"
        (tmp_path / "reports").mkdir(exist_ok=True)
        (tmp_path / "reports" / name).write_bytes(zipped({"test/test-reports/training_timm_models.csv": text}))
    done = karat_here("refresh", "--source", "folder", str(tmp_path / "reports"), "--scope", "all", cwd=tree.root)
    assert (done.code, read(tree), read(tree, f"rocm/{TIMM}")) == (0, OLD, NEW), done.out


def test_a_suite_that_shares_another_s_table_makes_none_of_its_own(
    ci: PyTorchCi, forge: Forge, tree: Repository, tmp_path: Path
) -> None:
    """The suite's own script takes `_avx2` off the name before it looks for the table."""
    both(ci)
    ci.shard("cpu_inductor_freezing_avx2_timm", 1, 1, ONE, machine="linux.10xlarge.avx2", config="linux-jammy-py3.9")
    done = refresh(forge, tree, tmp_path / "cache")
    assert (done.code, tables(tree)) == (0, [f"{TIMM}.csv", f"rocm/{TIMM}.csv"]), done.out


def test_a_job_that_died_before_its_table_is_missed_where_it_has_one(
    ci: PyTorchCi, forge: Forge, tree: Repository, tmp_path: Path
) -> None:
    tree.write(f"{FOLDER}/inductor_huggingface_training.csv", OLD)
    tree.commit()
    both(ci)
    nothing = {"test/test-reports/a.xml": "<testsuites/>"}
    died = ci.shard("inductor_huggingface", 1, 1, (), conclusion="failure", more=nothing)
    ci.shard("inductor_huggingface", 1, 1, (), machine=ROCM, conclusion="failure", more=nothing)
    ci.shard("inductor_torchbench", 1, 1, (), conclusion="failure", more=nothing)
    done = refresh(forge, tree, tmp_path / "cache")
    assert (done.code, read(tree)) == (3, NEW), done.out
    assert done.out.count("left no golden values") == 1, done.out
    assert f"gh run rerun --job {died.id}" in done.out


def test_a_retry_counts_and_a_table_without_one_of_its_shards_stays(
    ci: PyTorchCi, forge: Forge, tree: Repository, tmp_path: Path
) -> None:
    tree.write(f"{FOLDER}/inductor_huggingface_training.csv", OLD)
    tree.commit()
    ci.shard("inductor_timm", 1, 2, ("a,4,pass,10,1",))
    ci.shard("inductor_timm", 2, 2, ("b,4,fail_to_run,1,",), conclusion="failure")
    ci.shard("inductor_timm", 2, 2, TWO, attempt=2)
    ci.shard("inductor_huggingface", 1, 2, ONE)
    ci.shard("inductor_huggingface", 2, 2, ())
    ci.shard("default", 1, 1, ("x,1,pass,1,1",))
    ci.run("lint").job("lintrunner")
    done = refresh(forge, tree, tmp_path / "cache")
    assert (done.code, read(tree)) == (1, NEW), done.out
    assert read(tree, "inductor_huggingface_training") == OLD
    assert "1 of 2 shards are missing from the new results (2)" in done.out
    assert "--prune" not in done.out, "rows that are gone with a shard are not meant to go"


def test_a_removed_model_is_removed_only_with_prune(
    ci: PyTorchCi, forge: Forge, tree: Repository, tmp_path: Path
) -> None:
    ci.shard("inductor_timm", 1, 1, ("a,4,pass,10,",))
    refused = refresh(forge, tree, tmp_path / "cache")
    assert refused.code == 1
    assert "1 of 2 rows is gone: b; if that is meant, --prune" in refused.out
    assert read(tree) == OLD
    assert refresh(forge, tree, tmp_path / "cache", "--prune").code == 0
    assert read(tree) == golden("a,pass,0")


DATA = Path(__file__).parents[2].parent / "shared/data/pytorch/pairs"


@pytest.mark.skipif(not DATA.is_dir(), reason="needs the public tables beside the project")
@pytest.mark.parametrize(
    "pair", ["01bcf9a40d_inductor_huggingface_training", "396630ed78_aot_eager_torchbench_training"]
)
def test_real_tables_come_out_as_the_project_itself_wrote_them(
    ci: PyTorchCi, forge: Forge, repository: Repository, tmp_path: Path, pair: str
) -> None:
    name = pair.partition("_")[2]
    suite, _, phase = name.rpartition("_")
    old, new = ((DATA / f"{pair}.{side}.csv").read_text() for side in ("old", "new"))
    tree = configured(repository, forge, {name: old})
    rows = [line.split(",") for line in new.splitlines()[1:] if line]
    shards = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    for number, some in enumerate(shards, 1):
        lines = [f"{model},4,{accuracy},9,{breaks}.0" for model, accuracy, breaks in some]
        ci.shard(suite, number, 2, lines, phase=phase, more=BESIDE)
    done = refresh(forge, tree, tmp_path / "cache", "--prune")
    assert (done.code, read(tree, name)) == (0, new), done.out
