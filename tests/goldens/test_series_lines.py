from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from karat.findings import Severity, UsageError
from karat.goldens import formats
from karat.goldens.series_lines import FORMAT
from karat.goldens.shapes import Document, Golden, Metric, Series, Table

LOG = b"""\
{"step": 1, "loss": 10.80, "optimizer": {"lr": 1e-1}, "note": "warm"}
{"step": 2, "loss": "nan", "optimizer": {"lr": 0.1}}
{"step":4,"loss":3,"optimizer":{"lr":0.05}}
"""

names = st.sampled_from(["loss", "a.b", "a", "lr", "grad norm", "ü", "deep.er.name"])
samples = st.dictionaries(st.integers(-(2**60), 2**60) | st.integers(0, 20), st.floats(), min_size=1, max_size=6)


def metric(held: dict[int, float]) -> Metric:
    steps = sorted(held)
    return Metric(np.array(steps, np.int64), np.array([held[s] for s in steps], np.float64))


@st.composite
def series(draw: st.DrawFn) -> Series:
    metrics = {
        name: metric(held) for name, held in draw(st.dictionaries(names, samples, min_size=1, max_size=3)).items()
    }
    texts = draw(
        st.dictionaries(
            st.sampled_from(["note", "host"]),
            st.dictionaries(st.integers(0, 9).map(str), st.sampled_from(["x", "y z", ""]), min_size=1),
            max_size=1,
        )
    )
    return Series(metrics, {}, texts)


def read(data: bytes) -> Series:
    golden = formats.read(data).golden
    assert isinstance(golden, Series)
    return golden


@pytest.mark.slow
@given(series())
def test_what_is_written_is_read_back(golden: Series) -> None:
    data = FORMAT.write(golden)
    assert FORMAT.read(data).golden == golden
    assert formats.read(data).format == "series-lines"


@pytest.mark.slow
@given(series(), series(), st.sampled_from([(", ", ": "), (",", ":")]))
def test_what_is_written_over_another_is_read_back(old: Series, new: Series, style: tuple[str, str]) -> None:
    like = b"".join(
        json.dumps(json.loads(line), separators=style).encode() + b"\n" for line in FORMAT.write(old).splitlines()
    )
    assert FORMAT.read(like).golden == old
    assert FORMAT.write(old, like=like) == like
    assert FORMAT.read(FORMAT.write(new, like=like)).golden == new


@pytest.mark.slow
@given(st.integers(1, 20), st.floats(allow_nan=False, allow_infinity=False))
def test_one_new_value_changes_only_its_token(step: int, value: float) -> None:
    held = {n: n / 7 for n in range(1, 21)}
    text = "".join(f'{{"step":{n}, "t": {{"loss" : {v!r}}}}}\n' for n, v in held.items())
    new = Series({"t.loss": metric({**held, step: value})})
    written = formats.write(new, like=text.encode()).decode()
    assert written == text.replace(f'{{"loss" : {held[step]!r}}}', f'{{"loss" : {value!r}}}')


def test_numbers_become_metrics_and_text_stays_by_step() -> None:
    golden = read(LOG)
    assert set(golden.metrics) == {"loss", "optimizer.lr"}
    assert golden.metrics["loss"].steps.tolist() == [1, 2, 4]
    assert math.isnan(golden.metrics["loss"].values[1])
    assert golden.metrics["optimizer.lr"].values.tolist() == [0.1, 0.1, 0.05]
    assert golden.others == {"note": {"1": "warm"}}


def test_a_field_may_be_missing_on_some_lines() -> None:
    golden = read(b'{"step": 1, "loss": 1}\n{"step": 2}\n{"step": 3, "loss": 3, "eval": 0.5}\n')
    assert golden.metrics["loss"].steps.tolist() == [1, 3]
    assert golden.metrics["eval"].steps.tolist() == [3]


def test_one_step_may_be_spread_over_lines() -> None:
    reading = formats.read(b'{"step": 1, "loss": 1}\n{"step": 1, "eval": 2}\n')
    assert reading.golden == Series({"loss": metric({1: 1.0}), "eval": metric({1: 2.0})})
    assert reading.findings == ()


@pytest.mark.parametrize("key", ["step", "iteration", "iter", "global_step", "_step", "epoch"])
def test_every_usual_name_of_a_step_is_known(key: str) -> None:
    golden = read(f'{{"{key}": 5, "loss": 1.0}}\n{{"{key}": 6, "loss": 2.0}}\n'.encode())
    assert golden == Series({"loss": metric({5: 1.0, 6: 2.0})})


def test_an_epoch_counts_only_if_nothing_else_does() -> None:
    golden = read(b'{"epoch": 0, "step": 1, "loss": 1.0}\n{"epoch": 0, "step": 2, "loss": 2.0}\n')
    assert golden.metrics["loss"].steps.tolist() == [1, 2]
    assert golden.metrics["epoch"].values.tolist() == [0.0, 0.0]


def test_a_summary_without_a_step_gives_scalars() -> None:
    data = b'{"step": 1, "loss": 1.0}\n{"best": 0.5, "by": "me"}\n'
    golden = read(data)
    assert (golden.scalars, golden.others) == ({"best": 0.5}, {"by": "me"})
    changed = Series(golden.metrics, {"best": 0.25}, golden.others)
    assert formats.write(changed, like=data) == data.replace(b"0.5", b"0.25")


def test_a_summary_that_comes_twice_is_named() -> None:
    reading = formats.read(b'{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 1.0}\n{"best": 1}\n{"best": 2}\n')
    assert [(f.kind, f.where) for f in reading.findings] == [("duplicate-key", "line 4")]


def test_a_bad_line_is_named_and_the_rest_is_read() -> None:
    reading = formats.read(b'{"step": 1, "loss": 1}\noops\n[1]\n{"step": 2, "loss": 2}\n', "log.jsonl")
    assert [(f.kind, f.severity, f.where, f.path) for f in reading.findings] == [
        ("unreadable", Severity.FAIL, "line 2", "log.jsonl"),
        ("unreadable", Severity.FAIL, "line 3", "log.jsonl"),
    ]
    assert reading.golden == Series({"loss": metric({1: 1.0, 2: 2.0})})


def test_a_last_line_that_breaks_off_means_truncated() -> None:
    reading = formats.read(LOG + b'{"step": 5, "lo')
    assert [(f.kind, f.severity, f.where) for f in reading.findings] == [("truncated", Severity.FAIL, "line 4")]
    assert reading.golden == read(LOG)


def test_two_values_at_one_step_are_named_and_the_last_one_read() -> None:
    reading = formats.read(b'{"step": 1, "loss": 1}\n{"step": 1, "loss": 2}\n')
    (finding,) = reading.findings
    assert (finding.kind, finding.metric, finding.where) == ("duplicate-key", "loss", "line 2")
    assert reading.golden == Series({"loss": metric({1: 2.0})})


def test_a_key_that_comes_twice_on_a_line_is_named_with_the_line_of_the_file() -> None:
    reading = formats.read(b'{"step": 1, "loss": 1}\n{"step": 2, "loss": 1, "loss": 2}\n')
    assert [(f.kind, f.where) for f in reading.findings] == [("duplicate-key", "line 2")]


def test_numbers_as_text_count_only_where_the_field_has_numbers() -> None:
    reading = formats.read(b'{"step": 1, "loss": "1.5", "v": "2"}\n{"step": 2, "loss": 2, "v": "3"}\n')
    assert isinstance(reading.golden, Series)
    assert reading.golden.metrics["loss"].values.tolist() == [1.5, 2.0]
    assert reading.golden.others == {"v": {"1": "2", "2": "3"}}
    assert [(f.kind, f.metric) for f in reading.findings] == [("number-as-text", "loss")]


def test_text_in_a_metric_is_a_failure() -> None:
    reading = formats.read(b'{"step": 1, "loss": "bad"}\n{"step": 2, "loss": 2}\n')
    assert [(f.kind, f.where) for f in reading.findings] == [("unreadable", "line 1")]


def test_new_steps_and_fields_take_the_style_of_the_log() -> None:
    golden = read(LOG)
    loss = metric({1: 10.8, 2: math.nan, 3: 5.0, 4: 2.0})
    lr = metric({1: 0.1, 2: 0.1, 3: 0.1, 4: 0.05})
    written = formats.write(Series({"loss": loss, "optimizer.lr": lr}, {}, golden.others), like=LOG)
    assert written == (
        b'{"step": 1, "loss": 10.80, "optimizer": {"lr": 1e-1}, "note": "warm"}\n'
        b'{"step": 2, "loss": "nan", "optimizer": {"lr": 0.1}}\n'
        b'{"step": 3, "loss": 5.0, "optimizer": {"lr": 1e-1}}\n'
        b'{"step":4,"loss":2.0,"optimizer":{"lr":0.05}}\n'
    )


def test_a_step_without_fields_is_removed_with_its_line() -> None:
    less = Series({"loss": metric({1: 10.8, 4: 3.0})})
    assert formats.write(less, like=LOG) == b'{"step": 1, "loss": 10.80}\n{"step":4,"loss":3}\n'


@pytest.mark.parametrize(
    "data", [b'{"a": 1}\n{"b": [1, 2]}\n', b'{"a":1}\r\n\r\n{"b":2}', b'{"step": "one"}\n{"step": "two"}\n']
)
def test_lines_without_steps_are_a_document_that_round_trips(data: bytes) -> None:
    reading = formats.read(data)
    assert isinstance(reading.golden, Document)
    assert reading.golden.value == [json.loads(line) for line in data.split(b"\n") if line.strip()]
    assert formats.write(reading.golden, like=data) == data


def test_a_document_of_lines_changes_only_the_line_that_changed() -> None:
    data = b'{"a":1.50}\n{"b":2}\n'
    assert formats.write(Document([{"a": 1.5}, {"b": 3}, {"c": 4}]), like=data) == (b'{"a":1.50}\n{"b":3}\n{"c": 4}\n')
    assert formats.write(Document([{"a": 1.5}]), like=data) == b'{"a":1.50}\n'


def test_a_single_line_is_a_log_only_if_it_counts_steps() -> None:
    assert formats.read(b'{"step": 1, "loss": 2.0}\n').format == "series-lines"
    assert formats.read(b'{"epoch": 1, "accuracy": 0.5}\n').format == "document-json"


@pytest.mark.parametrize("golden", [Table(("a", "b"), ("a",), {}), Document({"a": 1}), Document([1])])
def test_what_has_no_place_in_the_file_is_refused(golden: Golden) -> None:
    with pytest.raises(UsageError, match="series-lines"):
        FORMAT.write(golden)


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["a", "b"]), st.integers() | st.text(max_size=3), max_size=2),
        min_size=2,
        max_size=4,
    )
)
def test_records_are_written_one_per_line(value: list[dict[str, Any]]) -> None:
    data = FORMAT.write(Document(value))
    assert FORMAT.read(data).golden == Document(value)
    assert data.count(b"\n") == len(value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "kind", "more"),
    [
        ('{{"step": 1, "loss": 2}}', "duplicate-key", 20_000 - 8),
        ('{{"step": {n}, "loss": "2.0"}}', "number-as-text", 20_000 - 8),
        ('{{"step": {n}, "loss": NaN}}', "non-finite-literal", 20_000 - 8),
        ('{{"step": {n}, "loss": [1]}}', "unreadable", 20_000 - 8),
        ('{{"step": {n}, "loss', "unreadable", 20_000 - 8),
        ("[{n}]", "unreadable", 20_000 - 8),
    ],
)
def test_many_odd_lines_are_few_findings(line: str, kind: str, more: int) -> None:
    odd = "".join(line.format(n=n) + "\n" for n in range(2, 20_002))
    reading = formats.read(f'{{"step": 1, "loss": 2}}\n{odd}'.encode())
    assert reading.format == "series-lines"
    assert [finding.kind for finding in reading.findings] == [kind] * 9
    assert reading.findings[-1].numbers["more"] == more
    assert reading.findings[-1].numbers["line"] == 20_001


def test_lines_and_records_count_together() -> None:
    many = ", ".join(["NaN"] * 20)
    lines = "".join(f'{{"step": {n}, "loss": 1, "held": [{many}]}}\n' for n in range(3))
    findings = formats.read(lines.encode()).findings
    assert len(findings) == 9
    assert findings[-1].numbers["more"] == 52
    assert "52 more findings of this kind, the last one: " in findings[-1].message


def test_thousands_of_steps_come_to_their_places() -> None:
    old = "".join(f'{{"step":{2 * n},"loss":{n / 4}}}\n' for n in range(1_500))
    new = {n: n / 8 for n in range(3_005)}
    written = formats.write(Series({"loss": metric(new)}), like=old.encode()).decode()
    assert written == "".join(f'{{"step":{n},"loss":{value!r}}}\n' for n, value in new.items())


def test_new_steps_stand_among_blank_lines_and_before_a_summary() -> None:
    like = b'{"step": 2, "a": 2.0}\n\n{"step": 4, "a": 4.0}\n{"best": 1}'
    new = Series({"a": metric({n: float(n) for n in range(1, 6)})}, {"best": 1.0})
    assert formats.write(new, like=like) == (
        b'{"step": 1, "a": 1.0}\n{"step": 2, "a": 2.0}\n{"step": 3, "a": 3.0}\n\n'
        b'{"step": 4, "a": 4.0}\n{"step": 5, "a": 5.0}\n{"best": 1}'
    )


@pytest.mark.parametrize("like", [None, LOG])
@pytest.mark.parametrize(
    "change", [{"start": 1}, {"end": 100}, {"interval": 1}, {"precision": 5}, {"extra": {"unit": "s"}}]
)
def test_fields_beside_the_values_are_refused(like: bytes | None, change: dict[str, Any]) -> None:
    loss = Metric(np.array([1, 2]), np.array([1.0, 2.0]), **change)
    with pytest.raises(UsageError, match="expected metrics to be read back"):
        formats.write(Series({"loss": loss}), like=like, format="series-lines")


@pytest.mark.parametrize("like", [None, LOG])
@pytest.mark.parametrize(
    "golden",
    [
        Series({}),
        Series({}, {"best": 1.0}),
        Series({"loss": metric({1: 1.0}), "none": metric({})}),
        Series({"loss": metric({1: 1.0})}, {}, {"config": {"lr": 0.1}}),
        Series({"loss": metric({1: 1.0}), "step": metric({1: 1.0})}),
    ],
)
def test_a_series_that_would_be_read_otherwise_is_refused(like: bytes | None, golden: Series) -> None:
    with pytest.raises(UsageError, match="series-lines cannot hold this series: expected"):
        FORMAT.write(golden, like)


@pytest.mark.parametrize("value", [[], [{"step": 1}, {"step": 2}]])
def test_a_document_that_would_be_read_otherwise_is_refused(value: list[Any]) -> None:
    with pytest.raises(UsageError, match="cannot hold this document: expected"):
        FORMAT.write(Document(value))


def test_a_log_with_nan_beside_its_numbers_is_written() -> None:
    like = b'{"step": 1, "a": 1, "held": [NaN, 1]}\n{"step": 2, "a": 2, "held": [NaN]}\n'
    golden = read(like)
    new = Series({"a": metric({1: 1.0, 2: 3.0})}, {}, golden.others)
    assert formats.write(new, like=like) == like.replace(b'"a": 2', b'"a": 3.0')


def test_a_text_that_spells_the_same_number_otherwise_is_a_new_text() -> None:
    like = b'{"step": 1, "a": 1, "version": "2"}\n'
    new = Series({"a": metric({1: 1.0})}, {}, {"version": {"1": "2.0"}})
    assert formats.write(new, like=like) == like.replace(b'"2"', b'"2.0"')


def test_one_step_and_many_numbers_beside_it_are_read_back() -> None:
    golden = Series({"loss": metric({1: 1.0})}, {"a": 1.0, "b": 2.0, "c": 3.0})
    assert formats.read(FORMAT.write(golden)).golden == golden
