from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factories.checked import TABLE, TODAY, kinds, only, options, outcomes, run
from factories.repositories import Repository, curves, golden_path, golden_text
from karat.checks.check import check
from karat.checks.report import CheckReport
from karat.compare.gate.result import CheckOutcome
from karat.compare.rules import RuleBook
from karat.config import load
from karat.findings import ExitCode
from karat.settings import CheckExemption, RecordSettings


def preset(tmp_path: Path) -> RuleBook:
    (tmp_path / ".git").mkdir(exist_ok=True)
    return load(tmp_path, preset="megatron-lm").rule_book()


def megatron(tmp_path: Path, values: dict[str, np.ndarray], **sets: Any) -> CheckReport:
    golden, actual = golden_text(curves(1)), golden_text(values, stop=sets.pop("stop", None))
    return run(tmp_path, golden, actual, "json", rules=preset(tmp_path), **sets)


def test_megatrons_gate_allows_one_step_of_fifty(tmp_path: Path) -> None:
    values = curves(1)
    values["lm loss"][10] *= 1.2
    assert megatron(tmp_path, values).outcome is CheckOutcome.PASS
    values["lm loss"][20] *= 1.2
    report = megatron(tmp_path, values)
    assert outcomes(report)["lm loss"] == "fail"
    exact = curves(1)
    exact["lm loss"] = exact["lm loss"] * (1 + 1e-6)
    assert megatron(tmp_path, exact).outcome is CheckOutcome.PASS
    assert megatron(tmp_path, exact, exact=("lm loss",)).outcome is CheckOutcome.FAIL


def test_megatrons_gate_judges_timings_by_their_median(tmp_path: Path) -> None:
    values = curves(1)
    values["iteration-time"][:29] *= 3
    assert megatron(tmp_path, values).outcome is CheckOutcome.PASS
    values["iteration-time"] *= 1.1
    assert outcomes(megatron(tmp_path, values))["iteration-time"] == "fail"


def test_a_run_that_died_fails_and_is_not_offered_as_a_golden(tmp_path: Path) -> None:
    report = megatron(tmp_path, curves(1), stop=13)
    assert report.exit_code is ExitCode.FAIL
    assert "truncated" in kinds(report)
    assert only(report).refresh is None
    assert all("karat diff" in (f.next or "") for f in report.all_findings())
    covered = CheckExemption(kind="flaky", owner="o", reason="r", link="l", expires=TODAY, covers="missing")
    report = megatron(tmp_path, curves(1), stop=13, exemptions=(covered,))
    assert (report.outcome, report.exit_code) == (CheckOutcome.EXEMPTED, ExitCode.OK)


def test_rules_and_exemptions_know_a_golden_by_its_path_in_the_repository(repository: Repository) -> None:
    golden = golden_path("flaky")
    repository.write(golden, golden_text(curves(1)))
    values = curves(1)
    values["lm loss"] *= 1.5
    repository.write("out.json", golden_text(values))
    inner = repository.root / "tests"
    known = CheckExemption(
        kind="flaky",
        owner="o",
        reason="r",
        link="l",
        expires=TODAY,
        path="tests/functional_tests/test_cases/gpt/flaky/*",
        metric="lm loss",
    )
    below = str(Path(golden).relative_to("tests"))
    report = check(["../out.json"], below, options(inner, exemptions=(known,)))
    assert (report.outcome, report.exit_code) == (CheckOutcome.EXEMPTED, ExitCode.OK)
    assert only(report).golden == golden
    there = {"CI_PIPELINE_ID": "7"}
    report = check(["../out.json"], below, options(inner, environment=there))
    assert (only(report).refresh or "").endswith(f"--only {golden}")


def test_a_golden_may_be_one_that_git_keeps(repository: Repository) -> None:
    repository.write("golden.csv", TABLE)
    repository.commit()
    repository.write("golden.csv", "broken")
    repository.write("actual.csv", TABLE)
    report = check(["actual.csv"], "HEAD:golden.csv", options(repository.root))
    assert report.outcome is CheckOutcome.PASS
    report = check(["actual.csv"], "HEAD:nowhere.csv", options(repository.root))
    assert report.exit_code is ExitCode.CANNOT_VERIFY


def test_json_lines_of_a_run_are_a_result(tmp_path: Path) -> None:
    values = curves(1)["lm loss"]
    golden = golden_text({"lm loss": values})
    lines = [json.dumps({"step": i, "lm loss": v}) for i, v in enumerate(values.tolist(), 1)]
    (tmp_path / "golden.json").write_text(golden)
    (tmp_path / "run.jsonl").write_text("\n".join(lines) + "\n")
    assert check(["run.jsonl"], "golden.json", options(tmp_path)).outcome is CheckOutcome.PASS
    (tmp_path / "run.jsonl").write_text("\n".join(lines[:20]) + "\n")
    report = check(["run.jsonl"], "golden.json", options(tmp_path))
    assert (report.outcome, "truncated" in kinds(report)) == (CheckOutcome.FAIL, True)


@pytest.mark.slow
def test_event_files_of_a_run_are_a_result(tmp_path: Path) -> None:
    values = curves(1)["lm loss"]
    (tmp_path / "golden.json").write_text(golden_text({"lm loss": values}))
    # A writer in a process of its own: it leaves threads behind, and its imports warn.
    program = (
        "import json, sys\nfrom tensorboardX import SummaryWriter\n"
        "w = SummaryWriter(sys.argv[1])\n"
        "[w.add_scalar('lm loss', v, i) for i, v in enumerate(json.loads(sys.argv[2]), 1)]\n"
        "w.close()\n"
    )
    made = [sys.executable, "-c", program, str(tmp_path / "tb"), json.dumps(values.tolist())]
    subprocess.run(made, check=True, capture_output=True)
    record = RecordSettings(rename={"lm_loss": "lm loss"})  # as that writer spells it
    report = check(["tb"], "golden.json", options(tmp_path, record=record))
    assert (report.outcome, report.compared) == (CheckOutcome.PASS, 50)
    report = check(["tb"], "golden.json", options(tmp_path))
    assert report.outcome is CheckOutcome.MISSING_ACTUAL
