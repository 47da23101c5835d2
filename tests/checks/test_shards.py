"""Shards of a table: checked alone, joined, and found by the names that a CI gives them."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.commands import karat as run_karat
from factories.repositories import Repository, curves, golden_text
from karat.api import check
from karat.checks.report import CheckReport
from karat.compare.gate.result import CheckOutcome
from karat.findings import ExitCode, UsageError

TABLE = "benchmarks/dynamo/ci_expected_accuracy/inductor_timm_training.csv"
ROCM = "benchmarks/dynamo/ci_expected_accuracy/rocm/inductor_timm_training.csv"
HEAD = "name,accuracy,graph_breaks\n"
RESULT = "dev,name,batch_size,accuracy,graph_breaks\n"
ONE = "reports/test-reports-test-inductor_timm-1-2-linux.g5.4xlarge.nvidia.gpu_11.zip/test/test-reports"
TWO = "reports/test-reports-test-inductor_timm-2-2-linux.g5.4xlarge.nvidia.gpu_12.zip/test/test-reports"


@pytest.fixture
def tree(repository: Repository) -> Repository:
    repository.write("karat.toml", 'preset = "pytorch-dynamo"\n')
    repository.write(".gitignore", "reports/\n")
    repository.write(TABLE, HEAD + "a,pass,0\nb,pass,1\nc,fail_to_run,2\nd,pass,0\n")
    repository.write(ROCM, HEAD + "a,pass,0\nb,timeout,1\n")
    repository.commit()
    repository.write(f"{ONE}/training_timm_models.csv", RESULT + "cuda,a,8,pass,0\ncuda,b,8,pass,1\n")
    repository.write(f"{TWO}/training_timm_models.csv", RESULT + "cuda,c,8,fail_to_run,2\ncuda,d,8,pass,0\n")
    repository.write(f"{ONE}/training_timm_models_graph_breaks.csv", "model,reason\na,print\n")
    return repository


def outcomes(report: CheckReport) -> dict[str | None, CheckOutcome]:
    return {c.golden: c.outcome for c in report.checks if c.golden}


def test_a_folder_of_reports_is_checked_against_the_tables_it_would_become(tree: Repository) -> None:
    report = check("reports", cwd=tree.root)
    assert outcomes(report) == {TABLE: CheckOutcome.PASS}
    assert report.exit_code is ExitCode.OK
    (one,) = [c for c in report.checks if c.golden]
    assert one.actual == f"{ONE}/training_timm_models.csv, {TWO}/training_timm_models.csv"
    assert next(r.compared for r in one.results if r.metric == "accuracy") == 4


def test_a_shard_alone_lacks_rows_unless_it_says_which_are_its_own(tree: Repository) -> None:
    shard = f"{ONE}/training_timm_models.csv"
    whole = check(shard, cwd=tree.root)
    assert {d.place for c in whole.checks for r in c.results if r.metric == "(rows)" for d in r.deviations} == {
        "c",
        "d",
    }
    assert check(shard, cwd=tree.root, rows=["[ab]"]).exit_code is ExitCode.OK
    lost = check(shard, cwd=tree.root, rows=["[abd]"])
    assert {d.place for c in lost.checks for r in c.results if r.metric == "(rows)" for d in r.deviations} == {"d"}
    assert lost.exit_code is ExitCode.FAIL


def test_nobody_is_told_to_take_a_shard_as_the_whole_table(tree: Repository) -> None:
    tree.write(f"{ONE}/training_timm_models.csv", HEAD + "a,timeout,0\nb,pass,1\n")
    alone = check(f"{ONE}/training_timm_models.csv", cwd=tree.root, rows=["[ab]"])
    tree.write(f"{TWO}/training_timm_models.csv", HEAD + "c,fail_to_run,2\nd,pass,0\n")
    for report in (alone, check("reports", cwd=tree.root)):
        assert report.exit_code is ExitCode.FAIL
        assert not any("karat record" in (f.next or "") for c in report.checks if c.golden for f in c.findings)
        assert [c.refresh for c in report.checks if c.golden] == [None]


def test_all_that_a_shard_has_is_checked_also_what_its_list_does_not_name(tree: Repository) -> None:
    shard = tree.write("reports/a.csv", RESULT + "cuda,a,8,pass,0\ncuda,b,8,fail_accuracy,1\n")
    report = check(shard, TABLE, cwd=tree.root, rows=["a"])
    assert report.exit_code is ExitCode.FAIL
    assert {d.place for c in report.checks for r in c.results if r.metric == "accuracy" for d in r.deviations} == {"b"}


def test_shards_that_disagree_about_a_row_fail(tree: Repository) -> None:
    tree.write(
        f"{TWO}/training_timm_models.csv",
        RESULT + "cuda,b,8,fail_accuracy,1\ncuda,c,8,fail_to_run,2\ncuda,d,8,pass,0\n",
    )
    report = check("reports", cwd=tree.root)
    (told,) = [f for f in report.all_findings() if f.kind == "duplicate-row"]
    assert "b is in two shards with different values" in told.message
    assert report.exit_code is ExitCode.FAIL


def test_a_shard_that_cannot_be_joined_is_no_pass(tree: Repository) -> None:
    tree.write(
        f"{TWO}/training_timm_models.csv", "dev,name,accuracy,graph_breaks\ncuda,c,fail_to_run,2\ncuda,d,pass,0\n"
    )
    assert "structure-changed" in {f.kind for f in check("reports", cwd=tree.root).all_findings()}
    tree.write(f"{TWO}/training_timm_models.csv", "")
    assert check("reports", cwd=tree.root).exit_code is ExitCode.FAIL


def test_where_folders_say_nothing_the_identity_does(tree: Repository) -> None:
    tree.write("test/test-reports/training_timm_models.csv", RESULT + "rocm,a,8,pass,0\nrocm,b,8,timeout,1\n")
    words = {"suite": "inductor_timm", "platform": "rocm"}
    assert outcomes(check("test/test-reports/training_timm_models.csv", cwd=tree.root, identity=words)) == {
        ROCM: CheckOutcome.PASS
    }
    inside = tree.root / "test" / "test-reports"
    assert outcomes(check("training_timm_models.csv", cwd=inside, identity=words)) == {ROCM: CheckOutcome.PASS}
    other = check("training_timm_models.csv", cwd=inside, identity={"suite": "inductor_torchbench"})
    assert outcomes(other) == {}
    with pytest.raises(UsageError, match="did you mean 'suite'"):
        check("training_timm_models.csv", cwd=inside, identity={"siute": "inductor_timm"})


def test_the_machine_says_whose_table_it_is(tree: Repository) -> None:
    folder = "reports/test-reports-test-inductor_timm-1-1-linux.rocm.gpu.2_13/test/test-reports"
    shard = tree.write(f"{folder}/training_timm_models.csv", RESULT + "rocm,a,8,pass,0\nrocm,b,8,timeout,1\n")
    assert outcomes(check(shard.relative_to(tree.root), cwd=tree.root)) == {ROCM: CheckOutcome.PASS}


@pytest.mark.slow
def test_a_shards_own_list_names_its_rows(tree: Repository) -> None:
    tree.write("models.txt", "# batch sizes\na,8\nb 16\n")
    words = ("check", f"{ONE}/training_timm_models.csv", "--rows-from", "models.txt")
    assert run_karat(*words, cwd=tree.root, GITHUB_ACTIONS="").code == 0
    tree.write("models.txt", "# nothing\n")
    none = run_karat(*words, cwd=tree.root, GITHUB_ACTIONS="")
    assert (none.code, "expected names of rows in models.txt, found none" in none.err) == (2, True)


def test_shards_named_together_are_joined(tmp_path: Path) -> None:
    (tmp_path / "golden.csv").write_text(HEAD + "a,pass,0\nb,pass,1\n")
    (tmp_path / "1.csv").write_text(HEAD + "a,pass,0\n")
    (tmp_path / "2.csv").write_text(HEAD + "b,pass,1\n")
    report = check(["1.csv", "2.csv"], "golden.csv", cwd=tmp_path)
    assert [c.outcome for c in report.checks] == [CheckOutcome.PASS]
    (tmp_path / "2.csv").write_text(HEAD + "b,fail_accuracy,1\n")
    assert check(["1.csv", "2.csv"], "golden.csv", cwd=tmp_path).exit_code is ExitCode.FAIL


def test_the_artifacts_name_tells_the_case_where_it_is_unique(repository: Repository) -> None:
    repository.write("karat.toml", 'preset = "megatron-lm"\n')
    repository.write(".gitignore", "logs/\n")
    golden = "tests/functional_tests/test_cases/{}/golden_values_dev_dgx_h100.json"
    for case in ("gpt/one", "gpt/two", "moe/two"):
        repository.write(golden.format(case), golden_text(curves(1)))
    results = "logs/logs-{}-12-ab34/results/0/0/assets/basic/x/golden_values_dev_dgx_h100.json"
    repository.write(results.format("one"), golden_text(curves(1)))
    repository.commit()
    assert outcomes(check("logs", cwd=repository.root)) == {golden.format("gpt/one"): CheckOutcome.PASS}
    repository.write(results.format("two"), golden_text(curves(1)))
    report = check("logs", cwd=repository.root)
    assert [c.golden for c in report.checks if c.outcome is CheckOutcome.PASS] == [golden.format("gpt/one")]
    assert "missing-golden" in {f.kind for f in report.all_findings()}
