from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st

from karat.findings import Severity, UsageError
from karat.goldens import formats
from karat.goldens.document_json import FORMAT
from karat.goldens.shapes import Document, Series

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
)


@given(values)
def test_what_is_written_is_read_back(value: Any) -> None:
    # The text of an object or a list, as a string alone in a file, is read as what it says.
    assume(not (isinstance(value, str) and value.strip().startswith(("{", "["))))
    reading = formats.read(formats.write(Document(value)))
    assert reading.golden == Document(value)
    assert reading.format == "document-json"


@pytest.mark.slow
@given(values, st.sampled_from([None, 1, 4]))
def test_an_unchanged_document_keeps_every_byte(value: Any, indent: int | None) -> None:
    data = json.dumps({"held": value}, indent=indent).encode()
    golden = formats.read(data).golden
    assert golden is not None
    assert formats.write(golden, like=data) == data


@given(st.integers(0, 9), st.floats(allow_nan=False, allow_infinity=False))
def test_one_new_value_changes_only_its_token(index: int, value: float) -> None:
    held = {"prompt": "hi", "logprobs": [n / 7 for n in range(10)]}
    text = json.dumps(held, indent=4)
    changed = {**held, "logprobs": [value if n == index else n / 7 for n in range(10)]}
    written = formats.write(Document(changed), like=text.encode()).decode()
    assert written == json.dumps(changed, indent=4)


@pytest.mark.parametrize("data", [b"{}", b"[]", b"null", b" {} \n"])
def test_nothing_inside_is_a_failure(data: bytes) -> None:
    reading = formats.read(data, "x.json")
    assert reading.golden == Document(json.loads(data))
    assert [(f.kind, f.severity, f.path) for f in reading.findings] == [("empty", Severity.FAIL, "x.json")]


@pytest.mark.parametrize("data", [b"0", b"false", b'""', b"12.5"])
def test_a_plain_value_is_something(data: bytes) -> None:
    reading = formats.read(data)
    assert reading.golden == Document(json.loads(data))
    assert reading.findings == ()


def test_broken_json_has_no_golden_and_one_finding() -> None:
    reading = formats.read(b'{"a": [1, 2}', "x.json")
    assert reading.golden is None
    assert reading.format == "document-json"
    assert [(f.kind, f.where, f.path) for f in reading.findings] == [("unreadable", "line 1", "x.json")]


def test_a_byte_order_mark_is_kept() -> None:
    data = b'\xef\xbb\xbf{"a": 1}'
    assert formats.read(data).golden == Document({"a": 1})
    assert formats.write(Document({"a": 2}), like=data) == b'\xef\xbb\xbf{"a": 2}'


def test_writing_over_a_broken_file_starts_afresh() -> None:
    assert FORMAT.write(Document({"a": 1}), like=b'{"a": ') == b'{\n    "a": 1\n}\n'


def test_other_shapes_are_refused() -> None:
    with pytest.raises(UsageError, match="documents"):
        FORMAT.write(Series({}))


containers = st.dictionaries(st.text(max_size=4), values, max_size=4) | st.lists(values, max_size=4)
inner_styles = st.sampled_from([{}, {"indent": 2}, {"separators": (",", ":")}])


@pytest.mark.parametrize("text", ["plain, text", "{not, json}", "[1, 2]", '{"a": 1}', "12", "1 2.0"])
def test_a_string_is_a_string_whatever_it_holds(text: str) -> None:
    data = json.dumps(text).encode()
    reading = formats.read(data)
    assert (reading.golden, reading.format) == (Document(text), "document-json")
    assert formats.write(Document(text), like=data) == data


def test_a_string_gives_way_to_a_plain_value() -> None:
    assert formats.write(Document(5), like=b'"a"') == b"5"
    assert formats.write(Document("x"), like=b'"a"') == b'"x"'
