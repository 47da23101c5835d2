"""What a suite's own tree says about its gate: read, never run, and named as the origin."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from factories import suite_gates as suite
from factories.commands import karat
from factories.repositories import Repository
from karat.api import check
from karat.checks.report import CheckReport
from karat.compare.gate.result import CheckOutcome, MetricResult
from karat.config import load
from karat.findings import ExitCode
from karat.presets.suite import Suite
from karat.settings import SuiteSettings

CASE = "tests/functional_tests/test_cases/gpt/case"
GOLDEN = f"{CASE}/golden_values_dev_dgx_h100.json"
THRESHOLDS = "tests/functional_tests/python_test_utils/test_pretraining_regular_pipeline.py"
TABLE = "benchmarks/dynamo/ci_expected_accuracy/inductor_timm_training.csv"
ROCM = "benchmarks/dynamo/ci_expected_accuracy/rocm/inductor_timm_training.csv"
ACCURACY = "benchmarks/dynamo/check_accuracy.py"


def series(factor: float = 1.0, **more: float) -> str:
    metrics = {"lm loss": 2.0, "num-zeros": 100.0, "mem-allocated-bytes": 1e9, "iteration-time": 1.0, **more}
    values = {name: {str(step): value * factor for step in range(1, 51)} for name, value in metrics.items()}
    return json.dumps(
        {name: {"start_step": 1, "end_step": 50, "step_interval": 1, "values": one} for name, one in values.items()}
    )


@pytest.fixture
def megatron(repository: Repository) -> Repository:
    repository.write("karat.toml", 'preset = "megatron-lm"\n')
    repository.write(GOLDEN, series())
    repository.write("out/near.json", series(1.04))
    return repository


def results(tree: Repository, run: str = "out/near.json", golden: str = GOLDEN) -> dict[str, MetricResult]:
    return {r.metric: r for c in check(run, golden, cwd=tree.root).checks for r in c.results}


def test_without_a_word_of_the_suite_all_that_has_a_threshold_is_gated(megatron: Repository) -> None:
    found = results(megatron)
    assert {r.check for r in found.values()} == {"approx", "median"}
    assert {r.origin for r in found.values()} == {"preset megatron-lm"}


@pytest.mark.parametrize(
    ("config", "gated", "exact"),
    [
        ("ENV_VARS:\n  NVTE_ALLOW_NONDETERMINISTIC_ALGO: 1\n", {"lm loss", "num-zeros"}, False),
        ("ENV_VARS:\n  NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0\n", {"lm loss", "num-zeros"}, True),
        (
            "ENV_VARS:\n  NON_DETERMINSTIC_RESULTS: '1' # atomics\nMETRICS:\n  - iteration-time\n",
            {"iteration-time"},
            False,
        ),
        (
            "METRICS:\n- \"lm loss\" # the loss\n\n# and\n- 'mem-allocated-bytes'\nMODE: x\n",
            {"lm loss", "mem-allocated-bytes"},
            True,
        ),
        ('MODEL_ARGS:\n  --prompts: "METRICS: no"\nMETRICS: [lm loss, "num-zeros"]\n', {"lm loss", "num-zeros"}, True),
    ],
)
def test_a_test_names_the_metrics_it_gates_and_how(
    megatron: Repository, config: str, gated: set[str], *, exact: bool
) -> None:
    megatron.write(f"{CASE}/model_config.yaml", config)
    found = results(megatron)
    assert {name for name, r in found.items() if r.check != "off"} == gated
    assert {name for name, r in found.items() if r.check == "exact"} == (
        gated & {"lm loss", "num-zeros"} if exact else set()
    )
    line = next((n for n, text in enumerate(config.splitlines(), 1) if text.startswith("METRICS")), 1)
    said = f"{CASE}/model_config.yaml:{line}"
    assert {r.origin for name, r in found.items() if name in gated} == {f"{said} over preset megatron-lm"}
    assert {r.origin for name, r in found.items() if name not in gated} <= {said}


@pytest.mark.parametrize("config", ["METRICS: *shared\n", "METRICS:\n  - {a: b}\n", "METRICS: >\n  lm loss\n"])
def test_yaml_that_is_not_understood_gates_more_rather_than_less(megatron: Repository, config: str) -> None:
    megatron.write(f"{CASE}/model_config.yaml", config)
    assert {r.check for r in results(megatron).values()} == {"approx", "median"}


def test_a_test_that_gates_nothing_is_no_pass(megatron: Repository) -> None:
    megatron.write(f"{CASE}/model_config.yaml", "METRICS:\nLAUNCHER: x\n")
    report = check("out/near.json", GOLDEN, cwd=megatron.root)
    assert (report.outcome, report.exit_code) == (CheckOutcome.NOTHING_COMPARED, ExitCode.FAIL)


def test_a_gated_metric_that_the_golden_lacks_fails(megatron: Repository) -> None:
    megatron.write(
        f"{CASE}/model_config.yaml",
        "ENV_VARS:\n  NVTE_ALLOW_NONDETERMINISTIC_ALGO: 1\nMETRICS:\n  - mtp_1 loss\n  - lm loss\n",
    )
    report = check("out/near.json", GOLDEN, cwd=megatron.root)
    (told,) = [f for f in report.all_findings() if f.kind == "lost-metric"]
    assert told.message.startswith("mtp_1 loss: expected the golden to have it, because it is gated [")
    assert f"{CASE}/model_config.yaml:3" in told.message
    assert report.exit_code is ExitCode.FAIL


def test_thresholds_are_read_from_the_suites_code(megatron: Repository) -> None:
    megatron.write(
        THRESHOLDS,
        'raise SystemExit("never run")\nCHECK_THRESHOLDS = {\n'
        '    "lm loss": [common.DeterministicTest(), common.ApproximateTest(atol=0, rtol=0.03)],\n'
        '    "num-zeros": [common.ApproximateTest(atol=0, rtol=0.2)],\n'
        '    "new-metric": [common.ApproximateTest(rtol=0.5)],\n}\n',
    )
    megatron.write(GOLDEN, series(**{"new-metric": 1.0}))
    megatron.write("out/near.json", series(1.04, **{"new-metric": 1.0}))
    found = results(megatron)
    assert (found["lm loss"].outcome, found["lm loss"].origin) == (CheckOutcome.FAIL, f"{THRESHOLDS}:3")
    assert found["num-zeros"].outcome is CheckOutcome.PASS
    assert (found["new-metric"].check, found["new-metric"].tolerance) == ("approx", "approx, rtol 0.5")
    megatron.write(THRESHOLDS, "CHECK_THRESHOLDS = {**OTHER, 'lm loss': 3, f(): [T(rtol=x)]}\nthis is no Python\n")
    assert results(megatron)["lm loss"].origin == "preset megatron-lm"


def test_the_users_own_word_stands_above_the_suites(megatron: Repository) -> None:
    megatron.write(f"{CASE}/model_config.yaml", "METRICS:\n  - num-zeros\n")
    megatron.write("karat.toml", 'preset = "megatron-lm"\n[[rules]]\nmetric = "lm loss"\nrtol = 0.5\n')
    found = results(megatron)
    assert (found["lm loss"].outcome, found["lm loss"].origin) == (CheckOutcome.PASS, "karat.toml")


LIST = """import sys
flaky_models = {
    "yolo", "b",  # two
}
def check(expected_filename):
    if "rocm" in expected_filename:
        flaky_models.update({"resnet"})
    if sys.argv:
        flaky_models.update({"everything"})
"""


def accuracy(*rows: str) -> str:
    return "name,accuracy,graph_breaks\n" + "".join(f"{row}\n" for row in rows)


@pytest.fixture
def pytorch(repository: Repository) -> Repository:
    repository.write("karat.toml", 'preset = "pytorch-dynamo"\n')
    repository.write(ACCURACY, LIST)
    for path in (TABLE, ROCM):
        repository.write(path, accuracy("yolo,pass,0", "b,fail_to_run,0", "resnet,pass,0", "everything,pass,0"))
    return repository


def codes(tree: Repository, *rows: str) -> tuple[CheckReport, CheckReport]:
    tree.write("out.csv", accuracy(*rows))
    one, other = (check("out.csv", path, cwd=tree.root) for path in (TABLE, ROCM))
    return one, other


def test_flaky_models_never_fail_and_rocm_has_more_of_them(pytorch: Repository) -> None:
    cuda, rocm = codes(pytorch, "yolo,timeout,0", "b,pass,0", "resnet,pass,0", "everything,pass,0")
    assert (cuda.exit_code, rocm.exit_code) == (ExitCode.OK, ExitCode.OK)
    (result,) = [r for r in cuda.checks[0].results if r.metric == "accuracy" and r.first and r.first.place == "yolo"]
    assert result.outcome is CheckOutcome.EXEMPTED
    assert result.because == f"flaky: the suite never fails it (suite, {ACCURACY}:3)"
    cuda, rocm = codes(pytorch, "yolo,pass,0", "b,fail_to_run,0", "resnet,timeout,0", "everything,pass,0")
    assert (cuda.exit_code, rocm.exit_code) == (ExitCode.FAIL, ExitCode.OK)


def test_a_condition_that_is_not_understood_exempts_nobody(pytorch: Repository) -> None:
    cuda, rocm = codes(pytorch, "yolo,pass,0", "b,fail_to_run,0", "resnet,pass,0", "everything,timeout,0")
    assert (cuda.exit_code, rocm.exit_code) == (ExitCode.FAIL, ExitCode.FAIL)


@given(
    st.binary(max_size=60) | st.text(max_size=60).map(str.encode),
    st.sampled_from([b"", b"METRICS:\n- ", LIST.encode()]),
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_stands_in_the_suites_files_is_no_crash(tmp_path: Path, noise: bytes, start: bytes) -> None:
    (tmp_path / "suite").write_bytes(start + noise)
    asked = SuiteSettings(metrics="suite", thresholds="suite", flaky={"accuracy": "suite"})
    found = Suite(asked, tmp_path, [])
    assert all(rule.origin.startswith("suite:") for rules in found.rules("x.json").values() for rule in rules)
    assert all(column == "accuracy" for column, _, _ in found.flaky("rocm"))
    assert found.facts(["x.json"]) == Suite(asked, tmp_path, []).facts(["x.json"])


def test_nesting_and_size_are_no_crash(tmp_path: Path) -> None:
    for text in ("(" * 5000, "x = " + "1+" * 20_000 + "1", "-" * 100_000, "flaky_models = {\0}"):
        (tmp_path / "suite").write_text(text)
        assert list(Suite(SuiteSettings(flaky={"accuracy": "suite"}), tmp_path, []).flaky("x")) == []


def test_flaky_models_are_said_to_be_nothing_where_a_table_lacks_them(pytorch: Repository) -> None:
    pytorch.write(TABLE, accuracy("a,pass,0"))
    pytorch.write("out.csv", accuracy("a,pass,0"))
    assert list(check("out.csv", TABLE, cwd=pytorch.root).all_findings()) == []


def test_flaky_lists_agree_with_the_second_writing_of_check_accuracy(pytorch: Repository) -> None:
    found = load(pytorch.root).suite_tree()
    assert found is not None
    for path, flaky in ((TABLE, {"yolo", "b"}), (ROCM, {"yolo", "b", "resnet"})):
        assert {row for column, row, _ in found.flaky(path) if column == "accuracy"} == flaky
        got = {"yolo": "timeout", "b": "pass", "resnet": "timeout", "everything": "pass"}
        want = {"yolo": "pass", "b": "fail_to_run", "resnet": "pass", "everything": "pass"}
        failed, improved = suite.check_accuracy(got, want, sorted(flaky))
        pytorch.write("out.csv", accuracy(*(f"{name},{status},0" for name, status in got.items())))
        report = check("out.csv", path, cwd=pytorch.root)
        assert (report.exit_code is ExitCode.FAIL) == bool(failed or improved)


@pytest.mark.slow
def test_config_shows_what_the_suite_says_and_where(megatron: Repository) -> None:
    none = karat("config", "--from-suite", cwd=megatron.root)
    assert (none.code, "the preset's own rules hold" in none.err) == (3, True)
    megatron.write(THRESHOLDS, 'CHECK_THRESHOLDS = {\n    "num-zeros": [T(atol=0, rtol=0.2)],\n}\n')
    for case in ("case", "other"):
        megatron.write(GOLDEN.replace("/case/", f"/{case}/"), series())
        megatron.write(
            f"{CASE.removesuffix('case')}{case}/model_config.yaml", "MODE: x\nMETRICS:\n- lm loss\n- iteration-time\n"
        )
    found = karat("config", "--from-suite", cwd=megatron.root)
    assert found.out.splitlines() == [
        f"num-zeros: rtol 0.2, atol 0  # {THRESHOLDS}:2",
        f"gates lm loss exactly, iteration-time  # {CASE}/model_config.yaml:2 and 1 other file",
    ]
    shown = karat("config", "--show-origin", "--metric", "lm loss", "--golden", GOLDEN, cwd=megatron.root).out
    assert f'[rule for "lm loss"]  # lm loss, {CASE}/model_config.yaml:2 over preset megatron-lm' in shown
    document = json.loads(karat("config", "--from-suite", "--json", cwd=megatron.root).out)
    jsonschema.validate(document, json.loads(karat("schema", "karat.config/1", cwd=megatron.root).out))
    assert document["suite"][0] == {"says": "num-zeros: rtol 0.2, atol 0", "origin": f"{THRESHOLDS}:2", "files": 1}


def test_config_without_a_suite_says_what_to_name(tmp_path: Path) -> None:
    found = karat("config", "--from-suite", cwd=tmp_path)
    assert (found.code, "expected a preset" in found.err) == (2, True)
