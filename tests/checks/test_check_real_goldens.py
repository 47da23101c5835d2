"""The documented outcomes on real changes of PyTorch's expectations, and on twins of their form."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from karat.checks.check import CheckOptions, check
from karat.checks.lookup import Where
from karat.checks.report import Checked
from karat.compare.gate.result import CheckOutcome
from karat.findings import ExitCode
from karat.goldens.paths import DEFAULT_GLOBS

HUGGINGFACE = "01bcf9a40d_inductor_huggingface_training"
INSTRUCTIONS = "1bb5e6c076_pr_time_expected_results"
MOCO = "396630ed78_aot_eager_torchbench_training"
DYNAMIC = "4e19c1906a_dynamic_inductor_torchbench_training"


def accuracy(*rows: str) -> str:
    return "\n\n\n\n".join(("name,accuracy,graph_breaks", *rows)) + "\n"


FILLER = [f"model_{i},pass,{i % 7}" for i in range(40)]
TWINS = {
    HUGGINGFACE: (
        accuracy(
            *FILLER,
            "DebertaForMaskedLM,pass,5",
            "DebertaForQuestionAnswering,pass,5",
            "DistillGPT2,pass,5",
            "OPTForCausalLM,pass,6",
            "Speech2Text2ForCausalLM,pass,6",
        ),
        accuracy(*FILLER, "DistillGPT2,pass,7", "OPTForCausalLM,pass,8"),
    ),
    INSTRUCTIONS: (
        "a,count,1009000000,0.1\n\n\n\nb,count,8787000000,0.1\n",
        "a,count,1048000000,0.1\n\n\n\nb,count,9199000000,0.1\n",
    ),
    MOCO: (accuracy(*FILLER, "moco,pass,11"), accuracy(*FILLER, "moco,pass,13")),
    DYNAMIC: (
        accuracy(
            "torchrec_dlrm,fail_to_run,3",
            "demucs,fail_to_run,4",
            "hf_BigBird,fail_to_run,3",
            "hf_Reformer,fail_to_run,21",
            *FILLER,
        ),
        accuracy("torchrec_dlrm,pass,6", "demucs,pass,9", "hf_BigBird,pass,6", "hf_Reformer,pass,25", *FILLER),
    ),
}


@pytest.fixture(params=["twin", "real"])
def pairs(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "real":
        data: Path = request.getfixturevalue("shared_data")
        return data / "pytorch" / "pairs"
    for name, (old, new) in TWINS.items():
        (tmp_path / f"{name}.old.csv").write_text(old)
        (tmp_path / f"{name}.new.csv").write_text(new)
    return tmp_path


def checked(golden: Path, actual: Path) -> tuple[Checked, ExitCode]:
    where = Where(cwd=golden.parent, globs=DEFAULT_GLOBS)
    report = check([str(actual)], str(golden), CheckOptions(where=where, today=date(2026, 5, 1)))
    assert len(report.checks) == 1
    return report.checks[0], report.exit_code


def forward(pairs: Path, name: str) -> tuple[Checked, ExitCode]:
    return checked(pairs / f"{name}.old.csv", pairs / f"{name}.new.csv")


def backward(pairs: Path, name: str) -> tuple[Checked, ExitCode]:
    return checked(pairs / f"{name}.new.csv", pairs / f"{name}.old.csv")


def places(found: Checked, metric: str) -> set[str | int]:
    return {d.place for r in found.results if r.metric == metric for d in r.deviations}


def outcome(found: Checked, metric: str) -> CheckOutcome:
    return next(r.outcome for r in found.results if r.metric == metric)


def test_removed_models_fail_by_name(pairs: Path) -> None:
    found, code = forward(pairs, HUGGINGFACE)
    assert code is ExitCode.FAIL
    assert places(found, "(rows)") == {"DebertaForMaskedLM", "DebertaForQuestionAnswering", "Speech2Text2ForCausalLM"}
    assert places(found, "graph_breaks") == {"DistillGPT2", "OPTForCausalLM"}
    assert outcome(found, "graph_breaks") is CheckOutcome.FAIL
    assert outcome(found, "accuracy") is CheckOutcome.PASS


def test_models_that_came_back_are_unknown_and_fewer_breaks_improved(pairs: Path) -> None:
    found, code = backward(pairs, HUGGINGFACE)
    assert (found.outcome, code) == (CheckOutcome.IMPROVED, ExitCode.OK)
    assert len(places(found, "(unknown rows)")) == 3
    assert outcome(found, "(rows)") is CheckOutcome.PASS


def test_more_graph_breaks_fail_and_fewer_improve(pairs: Path) -> None:
    found, code = forward(pairs, MOCO)
    assert (found.outcome, code) == (CheckOutcome.FAIL, ExitCode.FAIL)
    assert places(found, "graph_breaks") == {"moco"}
    found, code = backward(pairs, MOCO)
    assert (found.outcome, code) == (CheckOutcome.IMPROVED, ExitCode.OK)
    assert found.refresh is not None


def test_a_fixed_model_improves_while_its_breaks_rise(pairs: Path) -> None:
    found, code = forward(pairs, DYNAMIC)
    models = {"torchrec_dlrm", "demucs", "hf_BigBird", "hf_Reformer"}
    assert (outcome(found, "accuracy"), places(found, "accuracy")) == (CheckOutcome.IMPROVED, models)
    assert (outcome(found, "graph_breaks"), code) == (CheckOutcome.FAIL, ExitCode.FAIL)
    found, code = backward(pairs, DYNAMIC)
    assert (outcome(found, "accuracy"), code) == (CheckOutcome.FAIL, ExitCode.FAIL)
    kinds = {f.kind for f in found.findings if f.metric == "accuracy"}
    assert kinds == {"status-regressed"}


def test_instruction_counts_within_their_margin_pass_both_ways(pairs: Path) -> None:
    for found, code in (forward(pairs, INSTRUCTIONS), backward(pairs, INSTRUCTIONS)):
        assert (found.outcome, code) == (CheckOutcome.PASS, ExitCode.OK)
        used = next(r.used for r in found.results if r.metric == "expected")
        assert used is not None
        assert 0.3 < used < 0.6


@pytest.mark.parametrize("name", sorted(TWINS))
def test_one_row_that_silently_disappeared_fails_whichever_it_is(pairs: Path, name: str, tmp_path: Path) -> None:
    golden = pairs / f"{name}.old.csv"
    lines = golden.read_text().splitlines()
    header = 1 if lines[0].startswith("name,") else 0
    rows = [i for i, line in enumerate(lines) if line and i >= header]
    for at in {rows[0], rows[len(rows) // 2], rows[-1]}:
        actual = tmp_path / "short.csv"
        actual.write_text("\n".join(lines[:at] + lines[at + 1 :]) + "\n")
        found, code = checked(golden, actual)
        assert (outcome(found, "(rows)"), code) == (CheckOutcome.FAIL, ExitCode.FAIL)
        (gone,) = places(found, "(rows)")
        assert str(gone).split(" / ")[0] == lines[at].split(",")[0]
