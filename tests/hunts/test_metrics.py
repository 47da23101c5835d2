from __future__ import annotations

import json
from math import inf, isnan
from typing import Any

import pytest
from hypothesis import given, strategies as st

from factories.hunt_files import ran
from karat.findings import UsageError
from karat.hunts.probe.metrics import NoValue, RunOutput, find_json, parse_json_path, parse_number, value_of
from karat.hunts.settings import MetricSettings


def run(output: str | bytes = "", **files: str | bytes) -> RunOutput:
    named = {name.replace("_", "."): data.encode() if isinstance(data, str) else data for name, data in files.items()}
    return RunOutput(ran=ran(output), files=named)


def value(metric: MetricSettings, came: RunOutput) -> float | str:
    """The value, or why there is none."""
    try:
        return value_of(metric, came)
    except NoValue as error:
        return str(error)


THREE = "MLUPS: 3\nMLUPS: 1\nMLUPS: 8.5\n"


@pytest.mark.parametrize(
    ("which", "found"), [("first", 3), ("last", 8.5), ("mean", 12.5 / 3), ("median", 3), ("min", 1), ("max", 8.5)]
)
def test_which_match(which: str, found: float) -> None:
    metric = MetricSettings(name="m", regex=r"MLUPS: ([0-9.]+)", which=which)  # type: ignore[arg-type]
    assert value(metric, run(THREE)) == pytest.approx(found)


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("\x1b[32mMLUPS: 5\x1b[0m\n", 5.0),
        ("MLUPS: 4\r100%|####\n", 4.0),
        ("10%\rMLUPS: 4\n", 4.0),
        (b"\xff\xfe MLUPS: 7\n", 7.0),
        ("MLUPS: \n", "no value for m"),
        ("MLUPS: 1\nMLUPS: nan\n", "m is nan"),
        ("x" * 100_000 + "MLUPS: 2", 2.0),
    ],
)
def test_output_as_a_terminal_shows_it(output: str | bytes, found: float | str) -> None:
    assert value(MetricSettings(name="m", regex=r"MLUPS: (\S*)"), run(output)) == found


def test_numbers_whose_sum_is_none() -> None:
    metric = MetricSettings(name="m", regex=r"m=(\S+)", which="mean")
    assert value(metric, run("m=1e308\nm=1e308\n")) == "m is inf"


@pytest.mark.parametrize("which", ["mean", "median", "min", "max"])
def test_one_nan_among_matches_is_no_number(which: str) -> None:
    metric = MetricSettings(name="m", regex=r"m=(\S+)", which=which)  # type: ignore[arg-type]
    assert value(metric, run("m=1\nm=nan\nm=3\n")) == "m is nan"


def test_a_unit_in_the_match_is_converted_or_refused() -> None:
    metric = MetricSettings(name="t", regex=r"took (.*)", unit="ms")
    assert value(metric, run("took 1.5 s")) == pytest.approx(1500)
    assert value(metric, run("took 3 apples")) == "t is not a number: '3 apples'"


def test_a_file_by_regex() -> None:
    metric = MetricSettings(name="m", regex=r"v=(\d+)", file="*.log")
    assert value(metric, run("v=1", a_log="v=2", b_log="v=3")) == 3
    assert value(metric, run("v=1")) == "no value for m"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output", "path", "found"),
    [
        ('noise {"a": 1}\n{"a": {"b": [1, 2]}}\nmore noise\n', "a.b[1]", 2.0),
        ('{"a": 1}\n{"a": 2}\n', "a", 2.0),
        ('log\n{\n  "a": {\n    "b": 4\n  }\n}\nend', "a.b", 4.0),
        ('{"a": 1}\n{broken\n', "a", 1.0),
        ('{"a": NaN}', "a", "m is nan"),
        ('{"a": 1e999}', "a", "m is inf"),
        ('{"a": ' + "9" * 400 + "}", "a", "m is inf"),
        ('{"a": "1,000"}', "a", 1000.0),
        ('{"a": true}', "a", 1.0),
        ('{"a": null}', "a", "m is not a number: null"),
        ('{"a": [1]}', "a", "m is not a number: a list of 1"),
        ('{"a": 1}', "b", "no value for m: no 'b' in an object with 'a'"),
        ("nothing", "a", "no value for m: no JSON object in the output"),
        ("{" * 50_000, "a", "no value for m: no JSON object in the output"),
        ('{"a":' * 5_000, "a", "no value for m: no JSON object in the output"),
        ('{"a": ' + "9" * 5_000 + "}", "a", "m is inf"),
        # Each of these took minutes where every broken line cost a look at all lines before it.
        ("{\n" * 200_000, "a", "no value for m: no JSON object in the output"),
        ('{"a":"y",\n' * 100_000 + '{"a": 3}\n', "a", 3.0),
        ('{"a":[1,\n' * 20_000, "a", "no value for m: no JSON object in the output"),
        ("{'python': 1}\n" * 1_000 + '{"a": "' + "x" * 10_000 + '", "a": 4}\n', "a", 4.0),
        ('\ufeff{"a": 1}', "a", 1.0),
    ],
)
def test_json_of_the_output(output: str, path: str, found: float | str) -> None:
    assert value(MetricSettings(name="m", json=path), run(output)) == found


def test_json_is_read_whole_wherever_a_piece_of_it_ends() -> None:
    for length in range(4050, 4100):
        text = json.dumps({"p": "x" * length, "q": [True, float("-inf")], "a": 4})
        assert value(MetricSettings(name="m", json="a"), run(text)) == 4


def test_json_of_a_file_and_of_json_lines() -> None:
    metric = MetricSettings(name="m", json="[1].x", file="r.json")
    assert value(metric, run(r_json='[{"x": 1}, {"x": 2}]')) == 2
    lines = MetricSettings(name="m", json="x", file="r.json")
    assert value(lines, run(r_json='{"x": 1}\n{"x": 5}\n')) == 5
    assert value(lines, run(r_json="{")) == "no value for m: no JSON object in r.json"
    assert value(lines, run('{"x": 1}')) == "no value for m"


@pytest.mark.slow
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_every_float_comes_back_from_json(values: list[float]) -> None:
    metric = MetricSettings(name="m", json=f"v[{len(values) - 1}]")
    assert value(metric, run("log\n" + json.dumps({"v": values}))) == values[-1]


def test_seconds_and_exit_codes() -> None:
    assert value(MetricSettings(name="t", seconds=True), run()) == 1.5
    good, bad = (RunOutput(ran=ran(), files={}), RunOutput(ran=ran(exit_code=None, signal=9), files={}))
    assert value(MetricSettings(name="t", exit_code=True), good) == 0
    assert value(MetricSettings(name="t", exit_code=True), bad) == 1


REPORT = """<testsuites><testsuite name="s">
<testcase classname="tests.test_a" name="test_x[1]" time="0.5"/>
<testcase classname="tests.test_a" name="test_y" time="1,000.25"><failure message="no">x</failure></testcase>
<testcase classname="tests.test_b" name="test_z" time="2"><error/></testcase>
<testcase classname="tests.test_b" name="test_s" time="9"><skipped/></testcase>
<testcase classname="tests.test_b" name="test_odd" time="nan"/>
</testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("glob", "what", "found"),
    [
        ("*", "seconds", 1002.75),
        ("*", "failed", 2.0),
        ("*", "passed", 2.0),
        ("tests.test_a::*", "failed", 1.0),
        ("tests.test_b.test_z", "failed", 1.0),
        ("test_x*", "passed", 1.0),
        ("test_s", "seconds", "no value for m"),
        ("test_x[1]", "passed", 1.0),
        ("test_odd", "seconds", "no value for m"),
        ("test_odd", "passed", 1.0),
        ("nothing", "failed", "no value for m"),
    ],
)
def test_junit(glob: str, what: str, found: float | str) -> None:
    metric = MetricSettings(name="m", junit=glob, value=what, file="j.xml")  # type: ignore[arg-type]
    assert value(metric, run(j_xml=REPORT)) == found


def test_a_report_with_a_namespace() -> None:
    report = '<j:testsuite xmlns:j="urn:j"><j:testcase name="a"><j:failure/></j:testcase></j:testsuite>'
    metric = MetricSettings(name="m", junit="a", value="failed", file="j.xml")
    assert value(metric, run(j_xml=report)) == 1


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><testsuite><testcase name="&b;"/></testsuite>'


@pytest.mark.parametrize(
    "report",
    [
        BOMB,
        BOMB.encode("utf-16"),
        "<a",
        "",
        b"\xff\xff",
        "<testsuite>",
        '<?xml version="1.0" encoding="no"?><testsuite/>',
    ],
)
def test_a_report_that_is_none_or_attacks(report: str | bytes) -> None:
    found = value(MetricSettings(name="m", junit="*", file="j.xml"), run(j_xml=report))
    assert str(found).startswith("no value for m: the report")


def test_a_report_that_was_not_left() -> None:
    assert value(MetricSettings(name="m", junit="*", file="j.xml"), run()) == "no value for m"


STEPS = st.lists(st.one_of(st.integers(-99, 99), st.text(max_size=8)), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("loss", ("loss",)),
        ("$.results[0].loss", ("results", 0, "loss")),
        ('a["lm loss"][-1]', ("a", "lm loss", -1)),
        ("['x y'].z", ("x y", "z")),
        ("[2]", (2,)),
        ("a b.c-d", ("a b", "c-d")),
    ],
)
def test_paths(text: str, steps: tuple[str | int, ...]) -> None:
    assert parse_json_path(text) == steps


@pytest.mark.parametrize("text", ["", "$", "a.", ".", "a..b", "a[", "a[x]", "a]b", "[0]b", 'a["x]'])
def test_what_is_no_path(text: str) -> None:
    with pytest.raises(UsageError, match="expected a path"):
        parse_json_path(text)


@given(STEPS)
def test_every_step_can_be_written(steps: list[str | int]) -> None:
    quoted = "".join(
        f"[{s}]" if isinstance(s, int) else '["' + s.replace("\\", "\\\\").replace('"', '\\"') + '"]' for s in steps
    )
    assert parse_json_path(quoted) == tuple(steps)


@given(STEPS, st.integers())
def test_what_was_put_there_is_found(steps: list[str | int], leaf: int) -> None:
    document: Any = leaf
    for s in reversed(steps):
        document = (
            {s: document}
            if isinstance(s, str)
            else ([None] * s + [document] if s >= 0 else [document] + [None] * (-s - 1))
        )
    assert find_json(json.loads(json.dumps(document)), tuple(steps)) == leaf


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (("x",), "no 'x' in an object with 'a'"),
        (("a", 1), "no 1 in a list of 1"),
        (("a", 0, "b"), "no 'b' in a number"),
        (("a", "0"), "no '0'"),
    ],
)
def test_a_step_that_leads_nowhere_is_named(path: tuple[str | int, ...], said: str) -> None:
    with pytest.raises(LookupError, match=said):
        find_json({"a": [1]}, path)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("587.92", 587.92),
        ("1,234,567.5", 1234567.5),
        ("1e5", 1e5),
        ("-3", -3),
        (" +.5 ", 0.5),
        ("1_000", 1000),
        ("5.", 5),
        ("-inf", -inf),
        ("Infinity", inf),
        ("1.5E-3", 0.0015),
        ("\N{MINUS SIGN}5", -5),
    ],
)
def test_numbers(text: str, found: float) -> None:
    assert parse_number(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1,23",
        "1,2345",
        "1 2",
        "3 ms",
        "0x10",
        ".",
        "e5",
        "-",
        "1.2.3",
        "12%",
        "1,234,5",
        ".E5",
        ".e5",
        "--inf",
        "1__0",
    ],
)
def test_what_is_no_number(text: str) -> None:
    assert parse_number(text) is None


def test_nan_is_told_apart() -> None:
    for text in ("nan", "NaN", "-nan"):
        found = parse_number(text)
        assert found is not None
        assert isnan(found)


@pytest.mark.parametrize(
    ("text", "unit", "found"),
    [
        ("12 ms", "ms", 12),
        ("12ms", "s", 0.012),
        ("2 min", "s", 120),
        ("12 %", "%", 12),
        ("12 GB/s", "GB/s", 12),
        ("12 GB", "MB", None),
        ("12", "ms", 12),
    ],
)
def test_units(text: str, unit: str, found: float | None) -> None:
    assert parse_number(text, unit) == (None if found is None else pytest.approx(found))


@given(st.text(alphabet="0123456789.,_eE+-infnams\N{MINUS SIGN} ", max_size=12))
def test_whatever_stands_there_is_a_number_or_none(text: str) -> None:
    assert isinstance(parse_number(text), float | None)


@given(st.floats(allow_nan=False))
def test_what_python_prints_is_read_exactly(value: float) -> None:
    assert parse_number(repr(value)) == value
    assert parse_number(str(value)) == value


@given(st.integers(-(10**15), 10**15))
def test_thousands(value: int) -> None:
    assert parse_number(f"{value:,}") == value
    assert parse_number(f"{value:_}") == value
