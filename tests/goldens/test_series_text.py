from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from karat.findings import Severity, UsageError
from karat.goldens import formats
from karat.goldens.series_text import FORMAT, METRIC, SeriesText
from karat.goldens.shapes import Document, Metric, Reading, Series

samples = st.dictionaries(st.integers(-(10**17), 10**17) | st.integers(0, 50), st.floats(), min_size=1, max_size=12)
silent = st.sampled_from(["", "# a comment", "   ", "#", "  # 1 2.0"])


def series(held: dict[int, float]) -> Series:
    steps = sorted(held)
    return Series({METRIC: Metric(np.array(steps, np.int64), np.array([held[s] for s in steps], np.float64))})


@st.composite
def files(draw: st.DrawFn) -> tuple[str, dict[int, float]]:
    held = draw(st.dictionaries(st.integers(0, 10**6), st.floats(), min_size=1, max_size=8))
    gap = draw(st.sampled_from([" ", "\t", "   "]))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    rows: list[str] = []
    for step, value in held.items():
        rows.extend(draw(st.lists(silent, max_size=2)))
        rows.append(f"{draw(st.sampled_from(['', '  ']))}{step}{gap}{value!r}")
    return end.join(rows) + draw(st.sampled_from(["", end])), held


@given(samples)
def test_what_is_written_is_read_back(held: dict[int, float]) -> None:
    data = FORMAT.write(series(held))
    reading = formats.read(data)
    assert reading.golden == series(held)
    assert reading.format == "series-text"
    assert reading.findings == ()


@pytest.mark.slow
@given(files())
def test_an_unchanged_series_keeps_every_byte(file: tuple[str, dict[int, float]]) -> None:
    data = file[0].encode()
    golden = formats.read(data).golden
    assert golden == series(file[1])
    assert formats.write(golden, like=data) == data


@pytest.mark.slow
@given(files(), samples)
def test_what_is_written_over_another_is_read_back(file: tuple[str, dict[int, float]], new: dict[int, float]) -> None:
    assert FORMAT.read(FORMAT.write(series(new), like=file[0].encode())).golden == series(new)


@given(st.integers(1, 20), st.floats(allow_nan=False))
def test_one_new_value_changes_only_its_token(step: int, value: float) -> None:
    held = {n: n / 7 for n in range(1, 21)}
    text = "# losses\n" + "".join(f"{n} {v!r}  # sampled\n" for n, v in held.items())
    written = formats.write(series({**held, step: value}), like=text.encode()).decode()
    assert written == text.replace(f"\n{step} {held[step]!r} ", f"\n{step} {value!r} ")


def test_steps_are_sorted_and_numbers_may_be_nan_or_infinite() -> None:
    reading = formats.read(b"3 nan\n1 Inf\n2 -1e-3\n")
    assert isinstance(reading.golden, Series)
    metric = reading.golden.metrics[METRIC]
    assert metric.steps.tolist() == [1, 2, 3]
    assert metric.values[:2].tolist() == [math.inf, -0.001]
    assert math.isnan(metric.values[2])
    assert reading.findings == ()


def test_a_line_that_does_not_fit_is_named() -> None:
    reading = formats.read(b"1 2.0\n2 3.0\nthree\n4 1.0\n")
    (finding,) = reading.findings
    assert (finding.kind, finding.severity, finding.where) == ("ragged-row", Severity.FAIL, "line 3")
    assert reading.golden == series({1: 2.0, 2: 3.0, 4: 1.0})


def test_a_step_that_comes_twice_is_named_and_the_last_one_read() -> None:
    reading = formats.read(b"1 2.0\n1 3.0\n")
    (finding,) = reading.findings
    assert (finding.kind, finding.where) == ("duplicate-key", "line 2")
    assert "lines 1 and 2" in finding.message
    assert reading.golden == series({1: 3.0})


def test_an_overflowing_number_is_named() -> None:
    (finding,) = formats.read(b"1 1e999\n2 1\n").findings
    assert (finding.kind, finding.severity) == ("non-finite-literal", Severity.WARN)


def test_steps_come_and_go_at_their_place() -> None:
    like = b"# head\n1\t1.50\n3\t3\n\n5\t5"
    assert formats.write(series({1: 1.5, 2: 2.0, 5: 5.0, 6: 6.0}), like=like) == (
        b"# head\n1\t1.50\n2\t2.0\n\n5\t5\n6\t6.0"
    )


def test_a_rewritten_file_does_not_carry_ragged_lines_along() -> None:
    like = b"1 1.0\n2 2.0\n3 3.0\n4"
    assert formats.write(series({1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}), like=like) == b"1 1.0\n2 2.0\n3 3.0\n4 4.0"


@pytest.mark.parametrize("data", [b"word 1\n", b"1.5 2\n", b"1\n", b"1 2 3\n", b"# 1 2\n"])
def test_other_text_is_not_claimed(data: bytes) -> None:
    assert not FORMAT.claims(data)


@pytest.mark.parametrize("golden", [Document(1), Series({}), Series({"loss": Metric(np.array([1]), np.array([1.0]))})])
def test_what_has_no_place_in_the_file_is_refused(golden: Document | Series) -> None:
    with pytest.raises(UsageError, match="one metric"):
        FORMAT.write(golden)


def test_only_comments_hold_nothing() -> None:
    reading = FORMAT.read(b"# nothing\n")
    assert reading.golden is None
    assert reading.findings[0].kind == "empty"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "kind", "more"),
    [("1 2.0", "duplicate-key", 20_000 - 1 - 8), ("{n} 1e999", "non-finite-literal", 20_000 - 8)],
)
def test_many_odd_lines_are_few_findings(line: str, kind: str, more: int) -> None:
    data = "".join(line.format(n=n) + "\n" for n in range(20_000)).encode()
    reading = FORMAT.read(data)
    assert [finding.kind for finding in reading.findings] == [kind] * 9
    assert reading.findings[-1].numbers == {"line": 20_000, "more": more}


def test_many_lines_that_do_not_fit_are_few_findings() -> None:
    data = "".join(f"{n} 2.0\nx {n} y\n" for n in range(20_000)).encode() + b"20000 1.0\n"
    assert FORMAT.claims(data)
    reading = FORMAT.read(data)
    assert [finding.kind for finding in reading.findings] == ["ragged-row"] * 9
    assert reading.findings[-1].numbers == {"line": 40_000, "more": 19_992}


@pytest.mark.parametrize("head", ["", "\n \n", "# a\n\n\t# b\n", "\r\n#\r\n"])
def test_the_first_line_that_speaks_decides(head: str) -> None:
    assert FORMAT.claims((head + "1 2.0\n").encode())
    assert FORMAT.claims((head + "1 2.0").encode())
    assert not FORMAT.claims((head + "x y\n1 2.0\n2 3.0\n").encode())
    assert not FORMAT.claims((head + "# only\n").encode())


def test_thousands_of_steps_come_to_their_places() -> None:
    old = {2 * n: float(n) for n in range(3_000)}
    new = {n: n / 2 for n in range(-10, 6_010)}
    like = "# head\n" + "".join(f"{step}\t{value!r}\n" for step, value in old.items())
    assert formats.write(series(new), like=like.encode()).decode() == "# head\n" + "".join(
        f"{step}\t{value!r}\n" for step, value in new.items()
    )


def test_new_steps_of_an_unsorted_file_stand_behind_the_last_smaller_one() -> None:
    like = b"5 5.0\n# middle\n1 1.0\n# end\n"
    held = {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0, 5: 5.0, 6: 6.0}
    assert formats.write(series(held), like=like) == (b"0 0.0\n5 5.0\n# middle\n1 1.0\n2 2.0\n3 3.0\n6 6.0\n# end\n")


@pytest.mark.parametrize("like", [None, b"1 1.0\n2 2.0\n", b"1 1.0\n"])
@pytest.mark.parametrize(
    "change", [{"start": 1}, {"end": 100}, {"interval": 1}, {"precision": 5}, {"extra": {"unit": "s"}}]
)
def test_fields_beside_the_values_are_refused(like: bytes | None, change: dict[str, Any]) -> None:
    metric = Metric(np.array([1, 2]), np.array([1.0, 2.0]), **change)
    with pytest.raises(UsageError, match="expected metrics to be read back"):
        formats.write(Series({METRIC: metric}), like=like, format="series-text")


def test_what_the_reader_sets_may_be_written_back(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = SeriesText.read

    def read_with_end(self: SeriesText, data: bytes) -> Reading:
        golden = plain(self, data).golden
        assert isinstance(golden, Series)
        metric = golden.metrics[METRIC]
        ended = Metric(metric.steps, metric.values, end=int(metric.steps[-1]))
        return Reading(Series({METRIC: ended}), (), self.name)

    monkeypatch.setattr(SeriesText, "read", read_with_end)
    like = b"1 1.0\n2 2.0\n"
    assert FORMAT.write(Series({METRIC: Metric(np.array([1, 2]), np.array([1.0, 2.0]), end=2)}), like) == like
    changed = Metric(np.array([1, 3]), np.array([1.0, 3.0]), end=3)
    assert FORMAT.write(Series({METRIC: changed}), like) == b"1 1.0\n3 3.0\n"
    with pytest.raises(UsageError, match="expected metrics to be read back"):
        FORMAT.write(Series({METRIC: Metric(np.array([1]), np.array([1.0]), end=9)}), like)


@pytest.mark.parametrize(
    ("golden", "found"),
    [
        (Series({METRIC: Metric(np.array([1]), np.array([1.0]))}, {"best": 1.0}), "value, best"),
        (Series({}, {METRIC: 1.0}), "found value"),
        (Document(1), "found a document"),
    ],
)
def test_a_refusal_says_what_was_found(golden: Document | Series, found: str) -> None:
    with pytest.raises(UsageError, match=found):
        FORMAT.write(golden, like=b"1 2.0\n")


def test_steps_that_the_file_cannot_spell_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot hold"):
        FORMAT.write(series({10**18: 1.0}))
    with pytest.raises(UsageError, match="cannot hold this series"):
        FORMAT.write(series({}))
