from __future__ import annotations

import json
import random
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from karat.findings import Severity, UsageError
from karat.goldens import formats
from karat.goldens.shapes import Document, Metric, Series, Table

ROOT = Path(__file__).parents[2]
SAMPLES: dict[str, bytes] = {
    "series-json": json.dumps(
        {
            "lm loss": {"start_step": 1, "end_step": 3, "step_interval": 1, "values": {"1": 10.5, "2": "nan", "3": 9}},
            "timing": 0.5,
        },
        indent=4,
    ).encode(),
    "series-lines": b'{"step": 1, "loss": 1.5, "o": {"lr": 0.1}}\n{"step": 2, "loss": "nan", "note": "x"}\n',
    "series-text": b"# losses\n1 8.039\n2 7.345\n3 nan\n",
    "table-csv": b'name,accuracy,graph_breaks\n\n\n\nadv,pass,0\n\n\n\n"b,c",fail,6\n',
    "document-json": b'{"0": {"prompt": "\\u00e9 hi", "logprobs": [-0.5, 1e-3], "ok": true, "none": null}}',
}
WRAPPED = [
    json.dumps(SAMPLES["series-json"].decode()).encode(),
    json.dumps(SAMPLES["document-json"].decode()).encode(),
    json.dumps(json.dumps([{"a": 1, "b": "x, y"}], indent=2)).encode() + b"\n",
]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
GARBAGE = [
    b"",
    b"\0",
    b"\xff",
    b"{",
    b"}",
    b"[",
    b'"',
    b"\\",
    b",",
    b"\n",
    b"nan",
    b"<<<<<<< a\n",
    b"1e999",
    b"#",
    b"\r",
    b"\xef\xbb\xbf",
]


@pytest.fixture(autouse=True)
def _forget_third_parties() -> Iterator[None]:
    formats._third_party.cache_clear()
    yield
    formats._third_party.cache_clear()


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """A valid file with a piece cut out, swapped or put in."""
    data = draw(st.sampled_from([*SAMPLES.values(), *WRAPPED]))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        until = draw(st.integers(at, min(len(data), at + 12)))
        data = data[:at] + draw(st.sampled_from(GARBAGE) | st.binary(max_size=4)) + data[until:]
    return data


def check_no_crash(data: bytes) -> None:
    reading = formats.read(data, "p")
    assert reading.golden is not None or reading.findings
    assert all(finding.path == "p" for finding in reading.findings)
    assert not any("raised" in finding.message for finding in reading.findings)
    if reading.golden is not None:
        assert formats.write(reading.golden, like=data) == data


@settings(max_examples=300)
@given(st.binary())
@example(b"\xff\xfe\0")
@example(b'{"a":' * 100_000)
@example(b"[" * 100_000)
@example(b'{"a": {"values": {"1": ' + b"9" * 5000 + b"}}}")
def test_no_bytes_make_reading_raise(data: bytes) -> None:
    check_no_crash(data)


@pytest.mark.slow
@settings(max_examples=800)
@given(mutations())
def test_no_mutated_file_makes_reading_raise(data: bytes) -> None:
    check_no_crash(data)


@pytest.mark.parametrize("name", SAMPLES)
def test_no_truncated_file_makes_reading_raise(name: str) -> None:
    data = SAMPLES[name]
    for end in range(len(data)):
        check_no_crash(data[:end])


@settings(max_examples=300)
@given(st.text(st.sampled_from('{}[]":,#\n\r "valuestpn0123.e-'), max_size=60))
def test_no_text_of_telling_characters_makes_reading_raise(text: str) -> None:
    check_no_crash(text.encode())


@pytest.mark.parametrize("name", SAMPLES)
def test_no_format_raises_on_bytes_it_did_not_claim(name: str) -> None:
    for data in [*SAMPLES.values(), *GARBAGE, b"\xff\xfe\0\0"]:
        reading = formats.named(name).read(data)
        assert reading.golden is not None or reading.findings, data
        assert reading.format == name


@pytest.mark.parametrize("name", SAMPLES)
def test_the_format_is_picked_by_content(name: str) -> None:
    reading = formats.read(SAMPLES[name])
    assert reading.format == name
    assert reading.golden is not None
    assert reading.golden.shape == formats.named(name).shape
    assert reading.findings == ()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_byte_order_mark_is_read_over_and_kept(name: str) -> None:
    data = b"\xef\xbb\xbf" + SAMPLES[name]
    reading = formats.read(data)
    assert reading.golden == formats.read(SAMPLES[name]).golden
    assert reading.golden is not None
    assert formats.write(reading.golden, like=data) == data


def test_entry_points_of_the_project_are_the_built_in_formats() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert list(project["entry-points"][formats.GROUP].items()) == list(formats.BUILT_IN)


def test_built_in_formats_bear_the_names_they_are_registered_by() -> None:
    assert [known.name for known in formats.formats()] == [name for name, _ in formats.BUILT_IN]
    assert all(isinstance(known, formats.Format) for known in formats.formats())


def test_text_in_no_format_is_one_finding() -> None:
    reading = formats.read(b"some prose\nand more\n", "notes.txt")
    assert (reading.golden, reading.format) == (None, None)
    (finding,) = reading.findings
    assert (finding.kind, finding.severity, finding.path) == ("unreadable", Severity.FAIL, "notes.txt")


def test_a_shape_without_a_file_gets_its_usual_format() -> None:
    series = Series({"loss": Metric(np.array([1]), np.array([2.0]))})
    table = Table(("name", "x"), ("name",), {("a",): ("a", "1")})
    document = Document([1, 2])
    for golden, name in ((series, "series-json"), (table, "table-csv"), (document, "document-json")):
        assert formats.read(formats.write(golden)).format == name


def test_a_file_of_another_shape_lends_no_style() -> None:
    assert formats.write(Document({"a": 1}), like=SAMPLES["table-csv"]) == formats.write(Document({"a": 1}))


def test_a_format_can_be_asked_for() -> None:
    series = Series({"value": Metric(np.array([1]), np.array([2.0]))})
    assert formats.write(series, format="series-text") == b"1 2.0\n"


def test_an_unknown_format_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match='"series-xml"'):
        formats.write(Document(1), format="series-xml")


THIRD_PARTY = """
from karat.goldens.shapes import Document, Reading


class Shouting:
    name = "shouting"
    shape = "document"

    def claims(self, data):
        return data.startswith((b'{"shout"', b"\\0SHOUT"))

    def read(self, data):
        return Reading(Document(len(data)))

    def write(self, golden, like=None):
        return (like or b"") + repr(golden).encode()


class Failing(Shouting):
    name = "failing"

    def claims(self, data):
        raise ZeroDivisionError(len(data))


class Impostor(Shouting):
    name = "series-json"


SHOUTING, FAILING, IMPOSTOR = Shouting(), Failing(), Impostor()
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a package with the given entry points on the path, as an installer would."""

    def install(**points: str) -> None:
        (tmp_path / "karat_third_party.py").write_text(THIRD_PARTY)
        folder = tmp_path / "karat_third_party-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Name: karat-third-party\nVersion: 1.0\n")
        rows = [f"{name} = karat_third_party:{target}\n" for name, target in points.items()]
        (folder / "entry_points.txt").write_text(f"[{formats.GROUP}]\n{''.join(rows)}")
        monkeypatch.syspath_prepend(tmp_path)

    return install


def test_a_third_party_is_asked_before_the_catch_all(install: Callable[..., None]) -> None:
    install(shouting="SHOUTING")
    assert [known.name for known in formats.formats()][-2:] == ["shouting", "document-json"]
    reading = formats.read(b'{"shout": 1}')
    assert (reading.golden, reading.format) == (Document(12), "shouting")
    assert formats.write(Document(1), like=b'{"shout": 1}').startswith(b'{"shout": 1}Document')


def test_a_third_party_may_read_what_is_not_text(install: Callable[..., None]) -> None:
    install(shouting="SHOUTING")
    assert formats.read(b"\0SHOUT").golden == Document(6)
    assert formats.read(b"\0WHISPER").findings[0].kind == "unreadable"


@pytest.mark.parametrize("target", ["MISSING", "THIRD_PARTY.missing", "Document", "IMPOSTOR"])
def test_a_broken_third_party_is_a_warning(install: Callable[..., None], target: str) -> None:
    install(aaa="SHOUTING", broken=target)
    reading = formats.read(b'{"a": 1}', "x.json")
    assert reading.golden == Document({"a": 1})
    (finding,) = reading.findings
    assert (finding.severity, finding.path) == (Severity.WARN, "x.json")
    assert '"broken"' in finding.message


def test_a_third_party_that_raises_is_passed_over_with_a_warning(install: Callable[..., None]) -> None:
    install(failing="FAILING")
    reading = formats.read(b'{"a": 1}')
    assert reading.golden == Document({"a": 1})
    assert "ZeroDivisionError" in reading.findings[0].message


def test_formats_work_without_package_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    assert [known.name for known in formats.formats()] == [name for name, _ in formats.BUILT_IN]


def test_spliced_files_do_not_make_reading_raise() -> None:
    generator = random.Random(7)
    pieces = list(SAMPLES.values())
    for _ in range(300):
        one, two = generator.choices(pieces, k=2)
        check_no_crash(one[: generator.randrange(len(one))] + two[generator.randrange(len(two)) :])


@pytest.mark.slow
@settings(max_examples=300)
@given(JSON_VALUES, st.sampled_from([None, 2]), st.integers(0, 2), st.sampled_from(["", "\n", " "]))
def test_no_json_is_claimed_as_a_table_or_as_lines_of_text(
    value: object, indent: int | None, wraps: int, space: str
) -> None:
    text = json.dumps(value, indent=indent)
    for _ in range(wraps):
        text = json.dumps(text)
    data = (space + text + space).encode()
    assert not formats.named("table-csv").claims(data)
    assert not formats.named("series-text").claims(data)
    check_no_crash(data)


@pytest.mark.parametrize("data", [b'"a,b",1\n"c",2\n', b'"name","x"\n"a","1"\n', b'"[a]",1\n"{b}",2\n'])
def test_a_table_may_begin_with_a_quote(data: bytes) -> None:
    assert formats.read(data).format == "table-csv"
