from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from karat.config import Config, load
from karat.findings import UsageError
from karat.goldens.shapes import Golden, Metric, Reading
from karat.report.plot import overlay
from karat.runs.repeats import SampledRun, Samples, render_samples
from karat.snapshots.judge import Judged, judge, lines, names_of, rules_for, tolerance_of
from karat.snapshots.values import as_written, document_of, series_of, table_of

CURVE = [1 / (step + 1) for step in range(20)]
FILE = Path("goldens/test_a/test_x/loss.json")


def judged(old: Golden, new: Golden, says: dict[str, Any] | None = None, config: Config | None = None) -> Judged:
    config = config or Config()
    book = rules_for(config, FILE, str(FILE), (says or {}, "golden.series"), names_of(new))
    return judge(Reading(as_written(old)[1].golden), new, book, str(FILE), config)


def series(values: Any, name: str = "loss") -> Golden:
    return series_of(name, values, 0)


def test_the_same_passes_and_so_does_noise() -> None:
    assert judged(series(CURVE), series(CURVE)).passed
    assert judged(series(CURVE), series([v * (1 + 5e-5) for v in CURVE])).passed


@pytest.mark.parametrize(
    "new",
    [
        [v * (1 + 5e-4) for v in CURVE],
        [*CURVE[:10], CURVE[10] * 1.001, *CURVE[11:]],
        CURVE[:13],
        [*CURVE, 0.04],
        [*CURVE[:-1], float("nan")],
        [*CURVE[:-1], float("inf")],
        [1e9 * v for v in CURVE],
    ],
)
def test_anything_else_fails(new: list[float]) -> None:
    assert not judged(series(CURVE), series(new)).passed


def test_steps_between_those_of_the_golden_fail() -> None:
    old = series(dict.fromkeys(range(0, 20, 2), 1.0))
    assert not judged(old, series(dict.fromkeys(range(19), 1.0))).passed


def test_what_died_early_is_told_before_what_moved() -> None:
    old = series({"loss": CURVE, "norm": CURVE})
    new = series({"loss": [2 * v for v in CURVE], "norm": CURVE[:13]})
    outcome = judged(old, new)
    assert outcome.incomplete
    assert [r.metric for r in outcome.results] == ["norm", "loss"]
    said = "\n".join(lines(outcome, "g.json", new, old))
    assert said.index("7 of 20 steps have no value") < said.index("20 of 20 steps out of tolerance")
    assert said.count("o golden, x now") == 2


def test_a_call_may_say_how_much_is_allowed_even_of_exact_metrics() -> None:
    old, new = series(CURVE, "tokens"), series([v * 1.01 for v in CURVE], "tokens")
    assert not judged(old, new).passed
    assert judged(old, new, tolerance_of(0.02, None, "call")).passed
    assert judged(old, new, tolerance_of(None, 0.02, "call")).passed
    assert not judged(old, new, tolerance_of(0.005, 0.0, "call")).passed
    with pytest.raises(UsageError, match="rtol must be"):
        tolerance_of(float("nan"), None, "call")


def test_rules_of_karat_toml_hold(tmp_path: Path) -> None:
    (tmp_path / "karat.toml").write_text('[[rules]]\nmetric = "loss"\nrtol = 0.1\n')
    config, new = load(tmp_path), series([v * 1.05 for v in CURVE])
    assert judged(series(CURVE), new, config=config).passed
    assert not judged(series(CURVE), new, tolerance_of(0.01, None, "call"), config).passed


def test_what_only_shows_is_no_evidence() -> None:
    old = series(CURVE, "latency")
    outcome = judged(old, old)
    assert not outcome.passed
    assert "nothing was compared" in "\n".join(lines(outcome, "g.json", old, old))
    assert judged(old, old, tolerance_of(0.1, None, "call")).passed


def test_tables_lose_no_row_and_gain_none_and_better_is_no_pass() -> None:
    old = table_of("t", {"a": {"accuracy": 0.5, "graph_breaks": 3}, "b": {"accuracy": 0.25, "graph_breaks": 4}})
    rows = {"a": {"accuracy": 0.5, "graph_breaks": 3}, "b": {"accuracy": 0.25, "graph_breaks": 4}}
    assert judged(old, old).passed
    assert not judged(old, table_of("t", {"a": rows["a"]})).passed
    assert not judged(old, table_of("t", {**rows, "c": rows["a"]})).passed
    assert not judged(old, table_of("t", {**rows, "b": {"accuracy": 0.25, "graph_breaks": 1}})).passed
    assert not judged(old, table_of("t", {**rows, "b": {"accuracy": 0.2501, "graph_breaks": 4}})).passed


def test_documents_are_compared_by_structure() -> None:
    old = document_of({"a": [1.0, 2.0], "b": "text"})
    assert judged(old, old).passed
    assert judged(old, document_of({"a": [1.00001, 2.0], "b": "text"})).passed
    assert not judged(old, document_of({"a": [1.01, 2.0], "b": "text"})).passed
    assert not judged(old, document_of({"a": [1.0, 2.0], "b": "other"})).passed
    assert not judged(old, document_of({"a": [1.0, 2.0]})).passed


def test_repeats_beside_the_golden_give_the_tolerance(tmp_path: Path) -> None:
    runs = [[v * (1 + 0.004 * n) for v in CURVE] for n in range(5)]
    file = tmp_path / "loss.json"
    file.write_bytes(as_written(series(CURVE))[0])
    names = tuple(SampledRun(name=f"repeat {n}", sha256=f"{n}") for n in range(5))
    samples = Samples(runs=names, series=tuple(series_of("loss", run, 0) for run in runs))
    (tmp_path / "loss.samples.json").write_bytes(render_samples(samples))
    book = rules_for(Config(), file, "loss.json", ({}, "call"), ["loss"])
    rule = book.rule_for("loss", "loss.json")
    assert rule.origin == "loss.samples.json"
    assert rule.rtol is not None
    assert 0.016 <= rule.rtol < 0.05
    (tmp_path / "loss.samples.json").write_bytes(
        render_samples(Samples(runs=names, series=(samples.series[0],) * 5))  # repeats that are equal
    )
    again = rules_for(Config(), file, "loss.json", ({}, "call"), ["loss"]).rule_for("loss", "loss.json")
    assert (again.rtol, again.origin) == (1e-4, "snapshots")


def test_curves_are_drawn_over_each_other() -> None:
    old = Metric.of({step: float(step) for step in range(10)})
    new = Metric.of({step: 9.0 - step for step in range(12)})
    drawn, _ = overlay(old, new, width=60, height=8)
    assert drawn[0].strip() == "9 |x        o"
    assert drawn[-1].split() == ["0", "11"]
    assert {len(line) <= 80 for line in drawn} == {True}


@pytest.mark.parametrize(
    "values", [[0.0], [1e308, -1e308], [float("nan"), 1.0], [5.0] * 200, [1e-300, 1e300], [float("nan")]]
)
def test_any_curve_can_be_drawn(values: list[float]) -> None:
    with np.errstate(all="raise"):
        metric = Metric.of(dict(enumerate(values)))
        assert len(overlay(metric, metric, width=60, height=8)[0]) in {0, 10}
