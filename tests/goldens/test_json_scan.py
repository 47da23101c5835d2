from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from karat.goldens import formats, json_scan, json_text, series_fast
from karat.goldens.json_scan import BrokenJSONError, find_break, scan, well_formed
from karat.goldens.shapes import Series

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["a, b", 'quo"te', "back\\slash", "]", "}", "é", "\ud800"])
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=4), inner, max_size=6),
    max_leaves=30,
)
styles = st.sampled_from([{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}])
STEPS = '{"lm loss": {"values": {' + ", ".join(f'"{n}": {n / 7}' for n in range(1, 3000))


def tree_break(text: str) -> tuple[int, tuple[str | int, ...], str] | None:
    """What the scanner that makes a tree says; the walk without one must say the same."""
    try:
        scan(text)
    except BrokenJSONError as error:
        return error.offset, error.path, error.expected
    return None


def walk_break(text: str) -> tuple[int, tuple[str | int, ...], str] | None:
    error = find_break(text)
    return None if error is None else (error.offset, error.path, error.expected)


@given(st.text(st.sampled_from('{}[]",:0123456789.eE+- \n\\truefalsnIiNaty')))
@example("[1,]")
@example('{"a":1,}')
@example("[[1,2],[3,")
@example('[{"a":[1,{"b":2}]},{"a":[1 2]}]')
def test_the_walk_and_the_tree_break_alike(text: str) -> None:
    assert walk_break(text) == tree_break(text)


@pytest.mark.slow
@given(values, styles, st.data())
def test_a_damaged_value_breaks_alike(value: Any, style: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value, **style)
    assert walk_break(text) is None
    at = data.draw(st.integers(0, len(text)))
    until = data.draw(st.integers(at, len(text)))
    put = data.draw(st.sampled_from(["", ",", "]", "}", '"', "\\", "x", "[", "NaN", "01"]))
    for damaged in (text[:at], text[:at] + put + text[until:]):
        assert walk_break(damaged) == tree_break(damaged)


def test_every_cut_of_records_and_lists_breaks_alike() -> None:
    rows = [{"id": n, "name": f"a, {n}", "v": [1.5, 2]} for n in range(4)]
    text = json.dumps({"rows": rows, "a": [[], {}, [[1, 2], "x"], 7, 8, {"é\n": [None]}]})
    for end in range(len(text)):
        assert walk_break(text[:end]) == tree_break(text[:end])


@pytest.mark.parametrize("depth", [198, 199, 200, 201, 300])
def test_the_limit_of_nesting_is_the_same(depth: int) -> None:
    for opening, inner, closing in (("[", "[1], 2", "]"), ('{"a":', '{"b": [1]}', "}")):
        text = opening * depth + inner + closing * depth
        assert walk_break(text) == tree_break(text)


def test_long_runs_are_counted() -> None:
    assert walk_break("[" + "1, " * 20_000 + "x") == (60_001, (20_000,), "a value")
    items = ['"a, b"', "[1, 2]", '{"a": [1, 2]}', "[[1]]", "null"] * 2000
    text = "[" + ", ".join(items) + ", "
    assert walk_break(text) == (len(text), (10_000,), "a value")


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 1 << 23])
def test_a_large_file_that_was_cut_short_is_read_no_other_way(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "LARGE", limit)
    monkeypatch.setattr(series_fast, "_LARGE", limit)
    (finding,) = formats.read(STEPS.encode(), "x.json").findings
    assert 'the file ends inside $["lm loss"].values on line 1' in finding.message
    whole = formats.read((STEPS + "}}}").encode())
    assert isinstance(whole.golden, Series)
    assert whole.findings == ()
    (finding,) = formats.read((STEPS + ', "3000": NaN}}}').encode()).findings
    assert finding.kind == "non-finite-literal"


def test_of_a_large_broken_file_no_value_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a value was made of a file that is broken")

    monkeypatch.setattr(json_text, "LARGE", 1)
    monkeypatch.setattr(json_text, "scan", forbidden)
    monkeypatch.setattr(json, "loads", forbidden)
    assert not json_text.parse(STEPS.encode()).ok


@pytest.mark.slow
def test_megabytes_that_were_cut_short() -> None:
    """Nine megabytes, over the limit; the time is for the reader."""
    rows = ",\n".join(f'{{"id": {n}, "name": "r{n}", "v": [1.5, 2.5]}}' for n in range(180_000))
    data = f'{{"rows": [\n{rows}'.encode()
    assert len(data) > json_scan.LARGE
    began = time.perf_counter()
    (finding,) = formats.read(data).findings
    print(f"\n{len(data) / 1e6:.1f} MB in {time.perf_counter() - began:.2f} s")
    assert "the file ends inside $.rows on line 180001" in finding.message


def test_well_formed_is_strict() -> None:
    assert well_formed('{"a": [1, "é"]}')
    assert well_formed(b"[]")
    for text in ('{"a": ', "[NaN]", "[1] 2", "[" * 100_000, ""):
        assert not well_formed(text)
        assert not well_formed(text.encode())
    assert not well_formed("\ud800")
