from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from karat.findings import Severity
from karat.goldens import formats
from karat.goldens.series_fast import read_fast
from karat.goldens.series_json import FORMAT, read_value
from karat.goldens.shapes import Document, Metric, Reading, Series

numbers = st.floats(allow_nan=True, allow_infinity=False) | st.integers(-(10**6), 10**6).map(float)
names = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["lm loss", "a:b", 'q"'])
counts = st.none() | st.integers(-(2**40), 2**40)
extras = st.dictionaries(st.sampled_from(["unit", "note"]), st.text(max_size=3) | st.integers() | st.none(), max_size=2)


@st.composite
def metrics(draw: st.DrawFn) -> Metric:
    samples = draw(st.dictionaries(st.integers(-(2**62), 2**62) | st.integers(0, 60), numbers, max_size=8))
    steps = sorted(samples)
    fields = (draw(counts), draw(counts), draw(counts), draw(counts))
    return Metric(
        np.array(steps, np.int64), np.array([samples[step] for step in steps], np.float64), *fields, draw(extras)
    )


@st.composite
def series(draw: st.DrawFn) -> Series:
    held = draw(st.dictionaries(names, metrics(), min_size=1, max_size=3))
    free = names.filter(lambda name: name not in held)
    scalars = draw(st.dictionaries(free, st.floats(allow_nan=False), max_size=2))
    taken = {*held, *scalars}
    others = draw(
        st.dictionaries(
            names.filter(lambda name: name not in taken),
            st.text(max_size=3) | st.lists(st.integers(), max_size=2) | st.none() | st.booleans(),
            max_size=2,
        )
    )
    return Series(held, scalars, others)


blocks = st.fixed_dictionaries(
    {
        "values": st.dictionaries(
            st.integers(0, 99).map(str),
            st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.just("nan"),
        )
    },
    optional={
        "start_step": st.integers(),
        "end_step": st.integers(),
        "step_interval": st.integers(),
        "value_precision": st.integers(),
    },
)
styles = st.sampled_from([{"indent": 4}, {"indent": 1}, {}, {"separators": (",", ":")}])
wrapping = st.sampled_from(["plain", "wrapped"])


def one(metric: Any) -> bytes:
    return json.dumps({"loss": metric}).encode()


def read_one(metric: Any) -> tuple[Metric, Reading]:
    reading = FORMAT.read(one(metric))
    assert isinstance(reading.golden, Series)
    return reading.golden.metrics["loss"], reading


def megatron(steps: int = 50) -> dict[str, Any]:
    """A golden of the form training tests keep, with a metric sampled every tenth step."""
    return {
        name: {
            "start_step": 1,
            "end_step": steps,
            "step_interval": 1,
            "values": {
                str(step): "nan" if name == "iteration-time" and step % 10 else 10.0 / step
                for step in range(1, steps + 1)
            },
        }
        for name in ("lm loss", "num-zeros", "iteration-time")
    }


@pytest.mark.slow
@given(series())
def test_what_is_written_is_read_back(golden: Series) -> None:
    reading = formats.read(formats.write(golden))
    assert reading.golden == golden
    assert reading.format == "series-json"


@pytest.mark.slow
@given(series(), series(), styles)
def test_what_is_written_over_another_is_read_back(old: Series, new: Series, style: dict[str, Any]) -> None:
    like = json.dumps(json.loads(FORMAT.write(old)), **style).encode()
    assert FORMAT.read(FORMAT.write(new, like=like)).golden == new


@pytest.mark.slow
@given(st.dictionaries(names, blocks | st.floats(allow_nan=False, allow_infinity=False), min_size=1), styles)
def test_the_quick_and_the_precise_way_agree(value: dict[str, Any], style: dict[str, Any]) -> None:
    data = json.dumps(value, **style).encode()
    quick = read_fast(data)
    if quick is not None:
        precise, findings = read_value(value)
        assert quick == precise
        assert findings == ()


@pytest.mark.slow
@given(st.dictionaries(names, blocks, min_size=1), styles, wrapping)
def test_an_unchanged_series_keeps_every_byte(value: dict[str, Any], style: dict[str, Any], wrap: str) -> None:
    text = json.dumps(value, **style)
    data = (json.dumps(text) if wrap == "wrapped" else text).encode()
    golden = formats.read(data).golden
    assert golden is not None
    assert formats.write(golden, like=data) == data


@pytest.mark.slow
@given(st.integers(1, 50), st.floats(allow_nan=False, allow_infinity=False), wrapping)
def test_one_new_value_changes_only_its_token(step: int, value: float, wrap: str) -> None:
    held = megatron()
    text = json.dumps(held, indent=4)
    before = json.dumps(held["lm loss"]["values"][str(step)])
    held["lm loss"]["values"][str(step)] = value
    expected = text.replace(f'"{step}": {before}', f'"{step}": {value!r}', 1)
    golden, _ = read_value(held)
    like = (json.dumps(text) if wrap == "wrapped" else text).encode()
    written = formats.write(golden, like=like).decode()
    assert (json.loads(written) if wrap == "wrapped" else written) == expected


def test_a_regular_file_takes_the_quick_way() -> None:
    data = json.dumps(megatron(), indent=4).encode()
    found = read_fast(data)
    assert found is not None
    assert list(found.metrics) == ["lm loss", "num-zeros", "iteration-time"]
    loss = found.metrics["lm loss"]
    assert (loss.start, loss.end, loss.interval, loss.precision) == (1, 50, 1, None)
    assert loss.steps.tolist() == list(range(1, 51))
    assert loss.values[1] == 5.0
    assert np.isnan(found.metrics["iteration-time"].values).sum() == 45
    assert loss.steps is found.metrics["num-zeros"].steps


def test_arrays_cannot_be_written_to() -> None:
    for data in (one({"values": {"1": 1.5}}), one({"values": {"2": 1.5, "1": 2}})):
        golden = formats.read(data).golden
        assert isinstance(golden, Series)
        with pytest.raises(ValueError, match="read-only"):
            golden.metrics["loss"].values[0] = 0.0


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": {"values": {"1": 1, "1": 2}}}',
        b'{"a": {"values": {"1": 1}}, "a": {"values": {"1": 2}}}',
        b'{"a": {"values": {"1": 1}, "values": {"1": 2}}}',
        b'{"a": {"values": {"1": 2}, "start_step": 1, "start_step": 2}}',
        b'{"a\\u003ab": {"values": {"1": 1, "1": 2}}}',
    ],
)
def test_duplicates_are_never_swallowed_by_the_quick_way(data: bytes) -> None:
    reading = formats.read(data, "x.json")
    assert [(f.kind, f.severity, f.path) for f in reading.findings] == [("duplicate-key", Severity.FAIL, "x.json")]
    assert isinstance(reading.golden, Series)


def test_two_spellings_of_a_step_are_a_duplicate() -> None:
    metric, reading = read_one({"values": {"1": 1.0, "01": 2.0}})
    assert (metric.steps.tolist(), metric.values.tolist()) == ([1], [2.0])
    (finding,) = reading.findings
    assert (finding.kind, finding.where) == ("duplicate-key", '$.loss.values["01"]')


def test_steps_are_sorted() -> None:
    metric, reading = read_one({"values": {"10": 1, "2": 2, "-1": 3}})
    assert metric.steps.tolist() == [-1, 2, 10]
    assert metric.values.tolist() == [3, 2, 1]
    assert reading.findings == ()


@pytest.mark.parametrize("raw", ["nan", None])
def test_no_sample_is_nan_without_a_finding(raw: object) -> None:
    metric, reading = read_one({"values": {"1": raw, "2": 1.0}})
    assert math.isnan(metric.values[0])
    assert reading.findings == ()


@pytest.mark.parametrize(("raw", "value"), [("inf", math.inf), ("-inf", -math.inf), ("2.5", 2.5), ("7", 7.0)])
def test_a_number_as_text_is_read_with_a_warning(raw: str, value: float) -> None:
    metric, reading = read_one({"values": {"1": raw, "2": 1.0}})
    assert metric.values[0] == value
    (finding,) = reading.findings
    assert (finding.kind, finding.severity) == ("number-as-text", Severity.WARN)
    assert (finding.metric, finding.where) == ("loss", '$.loss.values["1"]')


@pytest.mark.parametrize("raw", ["abc", True, "1_0", "\u0661"])
def test_what_is_no_number_is_a_failure_with_its_place(raw: object) -> None:
    metric, reading = read_one({"values": {"1": raw, "2": 1.0}})
    assert math.isnan(metric.values[0])
    (finding,) = reading.findings
    assert (finding.kind, finding.severity) == ("unreadable", Severity.FAIL)
    assert finding.where == '$.loss.values["1"]'


@pytest.mark.parametrize("key", ["x", "1.5", "99999999999999999999", ""])
def test_a_key_that_is_no_step_is_a_failure_and_stays_on_disk(key: str) -> None:
    data = one({"values": {"1": 1.0, key: 2.0}})
    reading = FORMAT.read(data)
    assert isinstance(reading.golden, Series)
    assert reading.golden.metrics["loss"].steps.tolist() == [1]
    assert [f.kind for f in reading.findings] == ["unreadable"]
    changed = Series({"loss": Metric(np.array([1]), np.array([3.0]))})
    assert json.loads(FORMAT.write(changed, like=data)) == {"loss": {"values": {"1": 3.0, key: 2.0}}}


def test_an_integer_beyond_floats_is_infinite_with_a_warning() -> None:
    metric, reading = read_one({"values": {"1": 10**400, "2": -(10**400)}})
    assert metric.values.tolist() == [math.inf, -math.inf]
    assert {f.kind for f in reading.findings} == {"non-finite-literal"}


def test_an_overflowing_literal_is_infinite_with_a_warning() -> None:
    reading = formats.read(b'{"loss": {"values": {"1": 1e400}}}')
    assert isinstance(reading.golden, Series)
    assert reading.golden.metrics["loss"].values.tolist() == [math.inf]
    assert [f.kind for f in reading.findings] == ["non-finite-literal"]


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        ({}, [0, 1, 2, 3]),
        ({"start_step": 1}, [1, 2, 3, 4]),
        ({"start_step": 1, "step_interval": 5}, [1, 5, 10, 15]),
        ({"start_step": 0, "step_interval": 5}, [0, 5, 10, 15]),
        ({"start_step": 5, "step_interval": 5}, [5, 10, 15, 20]),
        ({"step_interval": 0}, [0, 1, 2, 3]),
    ],
)
def test_a_list_of_values_has_the_start_and_then_multiples(fields: dict[str, int], steps: list[int]) -> None:
    metric, reading = read_one({**fields, "values": [1, "nan", 3.5, 4]})
    assert metric.steps.tolist() == steps
    assert math.isnan(metric.values[1])
    assert reading.findings == ()


def test_a_list_of_values_stays_a_list() -> None:
    data = one({"start_step": 1, "values": [1, "nan", 3.50]})
    metric, _ = read_one({"start_step": 1, "values": [1, "nan", 3.50]})
    values = np.append(metric.values, 9.0)
    longer = Metric(np.append(metric.steps, 4), values, start=1)
    assert json.loads(FORMAT.write(Series({"loss": longer}), like=data)) == {
        "loss": {"start_step": 1, "values": [1, "nan", 3.5, 9.0]}
    }


def test_a_list_that_lost_its_rhythm_becomes_steps() -> None:
    data = one({"values": [1.0, 2.0]})
    gap = Metric(np.array([0, 7]), np.array([1.0, 2.0]))
    assert json.loads(FORMAT.write(Series({"loss": gap}), like=data)) == {"loss": {"values": {"0": 1.0, "7": 2.0}}}


def test_scalars_and_others_stand_beside_the_blocks() -> None:
    data = json.dumps(
        {"loss": {"values": {"1": 1}}, "timing": 0.35, "n": 3, "note": "x", "ok": True, "b": {"values": "?"}}
    ).encode()
    golden = formats.read(data).golden
    assert isinstance(golden, Series)
    assert golden.scalars == {"timing": 0.35, "n": 3.0}
    assert golden.others == {"note": "x", "ok": True, "b": {"values": "?"}}


def test_unknown_fields_of_a_block_are_kept() -> None:
    block = {"start_step": 1, "values": {"1": 1.0}, "unit": "nats", "value_precision": 5}
    metric, _ = read_one(block)
    assert (metric.extra, metric.precision) == ({"unit": "nats"}, 5)
    assert json.loads(FORMAT.write(Series({"loss": metric}))) == {"loss": block}


def test_a_field_that_is_no_number_is_kept_with_a_warning() -> None:
    metric, reading = read_one({"start_step": "soon", "end_step": "50", "values": {"1": 1.0}})
    assert (metric.start, metric.end, metric.extra) == (None, None, {"start_step": "soon", "end_step": "50"})
    assert [(f.kind, f.severity) for f in reading.findings] == [("unreadable", Severity.WARN)] * 2


def test_an_empty_block_is_an_empty_metric() -> None:
    metric, reading = read_one({"start_step": 1, "values": {}})
    assert metric.steps.size == 0
    assert reading.findings == ()


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": 1},
        {"a": {"values": {"x": 1}}},
        {"a": {"values": {"1": {"deep": 1}}}},
        {"a": {"values": ["text", "more"]}},
        [{"values": {"1": 1}}],
    ],
)
def test_other_json_is_a_document(value: Any) -> None:
    data = json.dumps(value).encode()
    assert not FORMAT.claims(data)
    assert formats.read(data).golden == Document(value)
    assert FORMAT.read(data).golden is None


def test_integers_keep_their_spelling_and_new_ones_take_it() -> None:
    data = one({"values": {"1": 2000, "2": 3000}})
    changed = Metric(np.array([1, 2, 3]), np.array([2000.0, 3001.0, 4.5]))
    written = FORMAT.write(Series({"loss": changed}), like=data)
    assert written == b'{"loss": {"values": {"1": 2000, "2": 3001, "3": 4.5}}}'


def test_json_that_was_dumped_twice_is_read_through_and_stays_so() -> None:
    data = json.dumps(json.dumps(megatron(3))).encode()
    golden = formats.read(data).golden
    assert isinstance(golden, Series)
    less = Series({name: golden.metrics[name] for name in ("lm loss",)})
    assert json.loads(json.loads(formats.write(less, like=data))) == {"lm loss": megatron(3)["lm loss"]}
