from __future__ import annotations

import math
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

from karat.config import load
from karat.goldens.series_json import FORMAT
from karat.goldens.shapes import Metric, Series
from karat.runs.curves import last_step, shaped, short_run
from karat.settings import RecordSettings


def curve(values: dict[int, float]) -> Metric:
    steps = sorted(values)
    return Metric(np.array(steps, np.int64), np.array([values[s] for s in steps], float))


def samples(metric: Metric) -> dict[int, float]:
    return dict(zip(metric.steps.tolist(), metric.values.tolist(), strict=True))


def test_tags_are_chosen_before_they_are_renamed() -> None:
    series = Series({"train/loss": curve({1: 1.0}), "train/lr": curve({1: 2.0}), "x": curve({1: 3.0})})
    settings = RecordSettings(tags=("train/*",), rename={"train/loss": "lm loss"})
    new, findings = shaped(series, settings)
    assert (list(new.metrics), findings) == (["lm loss", "train/lr"], ())


def test_two_sources_of_one_metric_are_told() -> None:
    series = Series({"a": curve({1: 1.0}), "b": curve({1: 2.0})})
    _, (finding,) = shaped(series, RecordSettings(rename={"a": "b"}))
    assert (finding.kind, finding.metric) == ("duplicate-key", "b")


def test_an_interval_keeps_the_start_and_the_multiples_as_megatron_does() -> None:
    series = Series({"a": curve({s: float(s) for s in range(1, 13)}), "b": curve({4: 0.5, 5: 0.25})})
    new, _ = shaped(series, RecordSettings(interval=5))
    assert samples(new.metrics["a"]) == {1: 1.0, 5: 5.0, 10: 10.0}
    assert str(samples(new.metrics["b"])) == str({1: math.nan, 5: 0.25, 10: math.nan})
    assert (new.metrics["a"].start, new.metrics["a"].end, new.metrics["a"].interval) == (1, 10, 5)


def test_a_start_leaves_out_what_stands_before_it() -> None:
    series = Series({"a": curve({s: float(s) for s in range(1, 8)})})
    assert samples(shaped(series, RecordSettings(start=6))[0].metrics["a"]) == {6: 6.0, 7: 7.0}
    thinned, _ = shaped(series, RecordSettings(start=2, interval=3))
    assert samples(thinned.metrics["a"]) == {2: 2.0, 3: 3.0, 6: 6.0}


def test_the_tail_of_a_run_that_died_is_not_filled_with_nan() -> None:
    series = Series({"a": curve({s: float(s) for s in range(1, 14)})})
    new, (finding,) = shaped(series, RecordSettings(interval=1, steps=50))
    assert (finding.kind, new.metrics["a"].end) == ("short-run", 13)


def test_a_last_step_that_the_interval_leaves_out_still_counts() -> None:
    series = Series({"a": curve(dict.fromkeys(range(1, 51), 1.0))})
    new, findings = shaped(series, RecordSettings(interval=20, steps=50))
    assert (new.metrics["a"].steps.tolist(), findings) == ([1, 20, 40], ())
    assert short_run(new, 50, "x") is None


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 17))
def test_rounding_is_that_of_decimals(value: float, decimals: int) -> None:
    series = Series({"a": curve({1: value, 2: math.nan, 3: math.inf})})
    new, _ = shaped(series, RecordSettings(precision=decimals))
    found = new.metrics["a"].values.tolist()
    assert found[0] == round(value, decimals)
    assert (math.isnan(found[1]), found[2]) == (True, math.inf)


@pytest.mark.slow
@given(st.lists(st.integers(-50, 500), min_size=1, max_size=30, unique=True))
def test_what_a_block_declares_is_true_of_its_steps(steps: list[int]) -> None:
    new, _ = shaped(Series({"a": curve(dict.fromkeys(steps, 1.0))}), RecordSettings())
    back = FORMAT.read(FORMAT.write(new))
    assert back.golden == new
    assert back.findings == ()
    metric = new.metrics["a"]
    assert (metric.start, metric.end) == (min(steps), max(steps))


def test_no_finite_value_at_all_is_short() -> None:
    series = Series({"a": curve({1: math.nan})})
    assert last_step(series) is None
    finding = short_run(series, 1, "x")
    assert finding is not None
    assert "no finite value" in finding.message


@pytest.mark.parametrize(("steps", "interval"), [([1, 2, 10], 1), ([1, 5, 10], 5), ([0, 10, 20], 10), ([7], 1)])
def test_an_interval_is_declared_only_where_it_is_true(steps: list[int], interval: int) -> None:
    metric = Metric(np.array(steps, np.int64), np.ones(len(steps)))
    new, _ = shaped(Series({"loss": metric}), RecordSettings())
    found = new.metrics["loss"]
    assert (found.start, found.end, found.interval) == (steps[0], steps[-1], interval)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"precision": 18}, "precision must be from 0 to 17"),
        ({"tags": ()}, "tags must have at least one glob"),
        ({"start": 2**63}, "start must be a number of 64 bits"),
        ({"log": {"step": "(a{99999999999})", "x": "(a)"}}, "expected a regular expression"),
        ({"interval": 0}, "interval must be at least 1"),
        ({"steps": -1}, "steps must be at least 0"),
        ({"log": {"loss": "(a)"}}, 'needs a pattern named "step"'),
        ({"log": {"step": "(a)"}}, "a pattern for a metric"),
        ({"log": {"step": "(a", "loss": "(b)"}}, "expected a regular expression"),
        ({"log": {"step": "(a)", "loss": "b"}}, "expected one group"),
    ],
)
def test_settings_that_make_no_sense_are_refused(table: dict[str, object], said: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=said.replace("(", r"\(")):
        msgspec.convert(table, RecordSettings)


def test_the_documented_table_is_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "config.md").read_text(encoding="utf-8")
    (block,) = [b for b in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[record]" in b]
    (tmp_path / "karat.toml").write_text(block, encoding="utf-8")
    settings = load(tmp_path).record
    assert set(msgspec.structs.asdict(settings)) == {key for key in RecordSettings.__struct_fields__ if key in block}
    assert settings.log["step"] == "iteration +([0-9]+)/"
