from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from karat.findings import Finding, Severity
from karat.goldens import json_text
from karat.goldens.json_text import scan, walk

NON_FINITE = json_text._non_finite
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(["nan", 'quo"te', "back\\slash", "é", "\U0001f600", "1"])
)
keys = st.text(max_size=5) | st.integers(-3, 30).map(str)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=5), max_leaves=20
)
styles = st.sampled_from(
    [
        {"indent": 4},
        {"indent": 2, "ensure_ascii": False},
        {"indent": "\t"},
        {},
        {"separators": (",", ":")},
        {"indent": 1, "separators": (",", " : ")},
    ]
)


def dumped(value: Any, style: dict[str, Any]) -> bytes:
    return json.dumps(value, **style).encode()


@pytest.mark.slow
@given(values, styles)
def test_parse_gives_the_value_and_nothing_to_say(value: Any, style: dict[str, Any]) -> None:
    data = dumped(value, style)
    parsed = json_text.parse(data)
    assert parsed.ok
    assert parsed.value == json.loads(data)
    if b"Infinity" not in data:
        assert not [f for f in parsed.findings if f.severity is Severity.FAIL]


@pytest.mark.slow
@given(values, styles)
def test_scanner_spans_hold_the_values(value: Any, style: dict[str, Any]) -> None:
    text = json.dumps(value, **style)
    for path, node in walk(scan(text)):
        held = value
        for part in path:
            held = held[part]
        assert json.loads(text[node.start : node.end]) == held


@given(st.text(st.sampled_from('{}[]",:0123456789.eE+- \n\\truefalsnIiNaty')))
def test_what_the_parser_accepts_is_scanned_whole(text: str) -> None:
    if json_text.parse_text(text).ok:
        root = scan(text)
        assert text[: root.start].strip() == text[root.end :].strip() == ""
        assert repr(json.loads(text[root.start : root.end])) == repr(json.loads(text))


def test_duplicate_keys_are_named_by_path_and_line_and_the_last_wins() -> None:
    data = b'{"lm loss": {\n"values": {"3": 1,\n"3": 2}}}'
    parsed = json_text.parse(data)
    assert parsed.value == {"lm loss": {"values": {"3": 2}}}
    (finding,) = parsed.findings
    assert (finding.kind, finding.severity) == ("duplicate-key", Severity.FAIL)
    assert finding.where == '$["lm loss"].values["3"]'
    assert "lines 2, 3" in finding.message


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "9" * 5000])
def test_what_is_not_finite_is_read_with_a_warning(token: str) -> None:
    parsed = json_text.parse(f'{{"a": [0,\n {token}]}}'.encode())
    assert parsed.ok
    assert not math.isfinite(parsed.value["a"][1])
    (finding,) = parsed.findings
    assert (finding.kind, finding.severity) == ("non-finite-literal", Severity.WARN)
    assert (finding.where, finding.numbers["line"]) == ("$.a[1]", 2)


def test_large_exponents_that_fit_are_no_hazard() -> None:
    assert json_text.parse(b"[1e300, 1e-400]").findings == ()


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": {"values": {"1": 10.8,\n"2"',
        b'{"a": {"values": {"1": 10.8,\n"2": ',
        b'{"a": "open\n',
        b'{"a": tru',
        b"[1, 2",
    ],
)
def test_cut_off_json_is_said_to_be_cut_short(data: bytes) -> None:
    parsed = json_text.parse(data)
    assert not parsed.ok
    (finding,) = parsed.findings
    assert finding.kind == "unreadable"
    assert f"the file ends on line {data.count(10) + 1}: it was cut short" in finding.message


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"a": 1,\n "b" 2}', "expecting ':' delimiter on line 2, column 6"),
        (b"[1,\n]", "expecting value on line 2, column 1"),
        (b'[{"a":[1,{"b":2}]},{"a":[1 2]}]', "expecting ',' delimiter on line 1, column 28"),
        (b"[1] 2", "extra data on line 1, column 5"),
    ],
)
def test_broken_json_says_what_was_expected_and_where(data: bytes, said: str) -> None:
    (finding,) = json_text.parse(data).findings
    assert said in finding.message
    assert finding.where == f"line {finding.numbers['line']}"


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
@pytest.mark.parametrize("depth", [201, 1_000, 100_000])
def test_absurd_nesting_is_a_finding_and_no_crash(opening: bytes, closing: bytes, depth: int) -> None:
    assert not json_text.parse(opening * depth).ok
    parsed = json_text.parse(opening * depth + b"1" + closing * depth)
    assert not parsed.ok
    assert "200 levels" in parsed.findings[0].message


def test_nesting_up_to_the_limit_is_read() -> None:
    assert json_text.parse(b"[" * 200 + b"]" * 200).ok
    parsed = json_text.parse(b"[" * 201 + b"]" * 201)
    assert not parsed.ok
    assert "200 levels" in parsed.findings[0].message


def test_lone_surrogates_become_text_that_can_be_written() -> None:
    parsed = json_text.parse(rb'{"\ud800": ["\udfff x", "\ud83d\ude00"]}')
    assert parsed.value == {"\\ud800": ["\\udfff x", "\U0001f600"]}
    json.dumps(parsed.value, ensure_ascii=False).encode()


@pytest.mark.slow
@given(values, styles, st.sampled_from(["\n", "\r\n"]), st.sampled_from([b"", b"\xef\xbb\xbf"]))
def test_an_unchanged_value_keeps_every_byte(value: Any, style: dict[str, Any], end: str, mark: bytes) -> None:
    data = mark + dumped(value, style).replace(b"\n", end.encode()) + b"\n"
    assert json_text.rewrite(data, json_text.parse(data).value) == data


@pytest.mark.slow
@given(values, values, styles)
def test_rewriting_gives_the_new_value(old: Any, new: Any, style: dict[str, Any]) -> None:
    text = json_text.rewrite(dumped(old, style), new)
    assert repr(json.loads(text)) == repr(_ordered(new, json.loads(text)))


def _ordered(new: Any, like: Any) -> Any:
    """The new value with its keys in the order of the other: order is the rewriter's to choose."""
    if isinstance(new, dict):
        assert set(new) == set(like)
        return {key: _ordered(new[key], like[key]) for key in like}
    if isinstance(new, list):
        assert len(new) == len(like)
        return [_ordered(a, b) for a, b in zip(new, like, strict=True)]
    return new


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param('{"a": 1.50, "b": 2}', {"a": 1.5, "b": 3}, '{"a": 1.50, "b": 3}', id="token"),
        pytest.param('{"a":1,"b":2}', {"b": 2}, '{"b":2}', id="remove-first"),
        pytest.param('{"a":1,"b":2}', {"a": 1}, '{"a":1}', id="remove-last"),
        pytest.param('{"a":1}', {}, "{}", id="remove-all"),
        pytest.param('{"a":1}', {"a": 1, "b": [2]}, '{"a":1,"b":[2]}', id="add-compact"),
        pytest.param('{"1": 5, "10": 6}', {"10": 6, "2": 9, "1": 5}, '{"1": 5, "2": 9, "10": 6}', id="step"),
        pytest.param('{"1": 5, "x": 6}', {"1": 5, "x": 6, "2": 9}, '{"1": 5, "x": 6, "2": 9}', id="at-end"),
        pytest.param("[1, 2, 3.0]", [1, 3.0], "[1, 3.0]", id="array-remove"),
        pytest.param("[1,3]", [1, 2, 3], "[1,2,3]", id="array-insert"),
        pytest.param("[1.0]", [1], "[1]", id="float-to-int"),
        pytest.param("[1, 0]", [True, False], "[true, false]", id="int-to-bool"),
        pytest.param("[NaN, 1]", [math.nan, 2], "[NaN, 2]", id="nan-stays"),
        pytest.param('{"a": 1, "a": 2, "b": 3}', {"a": 2, "b": 3}, '{"a": 1, "a": 2, "b": 3}', id="dup"),
        pytest.param('{"a": 1, "a": 2, "b": 3}', {"a": 9, "b": 3}, '{"a": 9, "b": 3}', id="dup-changed"),
        pytest.param("{}", {"a": 1}, '{"a": 1}', id="filled"),
        pytest.param('{"é": 1}', {"é": 2, "ü": 3}, '{"é": 2, "ü": 3}', id="unescaped"),
        pytest.param(r'{"\u00e9": 1}', {"é": 2, "ü": 3}, r'{"\u00e9": 2, "\u00fc": 3}', id="escaped"),
    ],
)
def test_rewriting_touches_only_what_changed(old: str, new: Any, expected: str) -> None:
    assert json_text.rewrite(old.encode(), new).decode() == expected


def test_an_added_block_is_laid_out_like_its_neighbour() -> None:
    old = {"a": {"start": 1, "values": {"1": 0.5}}, "list": [1, 2]}
    new = {**old, "b": {"start": 2, "values": {"1": 0.25, "2": 1.0}}}
    data = json.dumps(old, indent=2).encode()
    assert json_text.rewrite(data, new).decode() == json.dumps(new, indent=2)


def test_an_added_step_takes_its_own_line_with_the_files_line_ending() -> None:
    data = b'{\r\n\t"1": 1,\r\n\t"3": 3\r\n}\r\n'
    assert json_text.rewrite(data, {"1": 1, "2": 2, "3": 3}) == (b'{\r\n\t"1": 1,\r\n\t"2": 2,\r\n\t"3": 3\r\n}\r\n')


def test_one_line_lists_stay_on_one_line() -> None:
    data = b'{\n  "a": [1, 2],\n  "b": [3]\n}'
    new = {"a": [1, 2, 5], "b": [3], "c": [7, 8]}
    assert json_text.rewrite(data, new) == b'{\n  "a": [1, 2, 5],\n  "b": [3],\n  "c": [7, 8]\n}'


def test_fresh_json_is_indented_unescaped_and_ends_with_a_newline() -> None:
    assert json_text.fresh({"ü": [1.0, None]}).decode() == '{\n    "ü": [\n        1.0,\n        null\n    ]\n}\n'


@pytest.mark.slow
@pytest.mark.parametrize("end", ["\n", "\r\n", " "])
def test_twenty_thousand_literals_are_counted_and_few_of_them_placed(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def make(*held: Any) -> Finding:
        made.append(held)
        return NON_FINITE(*held)

    monkeypatch.setattr(json_text, "_non_finite", make)
    text = '{"a": [' + end + f",{end}".join(["NaN"] * 20_000) + "]}"
    parsed = json_text.parse(text.encode())
    *shown, rest = parsed.findings
    lines = [n if end != " " else 1 for n in range(2, 10)]
    assert [finding.numbers["line"] for finding in shown] == lines
    assert [finding.where for finding in shown] == [f"$.a[{n}]" for n in range(8)]
    assert rest.numbers["more"] == 19_992
    assert (rest.where, rest.numbers["line"]) == ("$.a[19999]", 20_001 if end != " " else 1)
    assert rest.numbers["column"] == len(text) - 4 if end == " " else 1
    assert len(made) == 9


def test_eight_thousand_duplicate_keys_are_counted_and_few_of_them_placed() -> None:
    names = [*range(8000), *range(8000)]
    text = "{" + ",\n".join(f'"k{n}": {place}' for place, n in enumerate(names)) + "}"
    parsed = json_text.parse(text.encode())
    assert parsed.value == {f"k{n}": 8000 + n for n in range(8000)}
    *shown, rest = parsed.findings
    assert [finding.where for finding in shown] == [f"$.k{n}" for n in range(8)]
    assert "2 times, on lines 3, 8003;" in shown[2].message
    assert rest.numbers == {"count": 2, "line": 16_000, "more": 7992}


def test_one_key_a_thousand_times_names_few_lines() -> None:
    text = "{" + ",\n".join('"k": 1' for _ in range(1000)) + "}"
    (finding,) = json_text.parse(text.encode()).findings
    assert "$.k 1000 times, on lines 1, 2, 3, 4, 5, 6, 7, 8 … 1000; the last" in finding.message
    assert finding.numbers == {"count": 1000, "line": 1000}


@given(st.text(st.sampled_from("a\n\r"), min_size=1), st.data())
def test_lines_and_columns_are_counted_from_one(text: str, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, len(text) - 1))
    assert json_text._place(text, offset) == (
        len(text[:offset].split("\n")),
        len(text[:offset].rsplit("\n", maxsplit=1)[-1]) + 1,
    )


@pytest.mark.parametrize("indent", [None, 2])
def test_thousands_of_steps_come_to_their_places(indent: int | None) -> None:
    old = {str(2 * n): n / 4 for n in range(3_000)}
    new = {str(n): n / 8 for n in range(6_000)}
    shuffled = {str(n): n / 8 for n in (m * 7 % 6_000 for m in range(6_000))}
    data = json.dumps({"values": old}, indent=indent).encode()
    expected = json.dumps({"values": new}, indent=indent)
    assert json_text.rewrite(data, {"values": shuffled}).decode() == expected


@pytest.mark.slow
def test_thousands_of_new_keys_and_items_go_to_the_end() -> None:
    old = {"list": [[1]], **{f"k{n}": [n] for n in range(2_000)}}
    new = {"list": [[n] for n in range(1, 2_001)], **{f"k{n}": [n] for n in range(4_000)}}
    data = json.dumps(old).encode()
    assert json_text.rewrite(data, new).decode() == json.dumps(new)


def test_new_steps_put_an_unsorted_object_in_order() -> None:
    new = {"30": 3, "10": 1, "20": 2, **{str(n): n for n in range(100, 0, -9)}}
    written = json_text.rewrite(b'{"30": 3, "10": 1, "20": 2}', new)
    assert json_text.parse(written).value == new
    assert [*json_text.parse(written).value] == sorted(new, key=int)


def test_keys_of_very_many_digits_are_kept() -> None:
    keys = {"1": 1, "9" * 5_000: 2}
    assert json_text.parse(json_text.rewrite(b'{"1": 1}', keys)).value == keys
