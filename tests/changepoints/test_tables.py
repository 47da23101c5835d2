"""CSV, JSON and JSON Lines: what is a label, what is a metric, and what is said of cells that are neither."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from karat.changepoints.readers.read import SeriesCollection, read
from karat.changepoints.readers.sheets import ReadOptions
from karat.changepoints.readers.tables import read_csv
from karat.changepoints.series import Outcome, Series
from karat.findings import CannotVerify, Severity, UsageError


def collected(root: Path, content: str | bytes, **options: Any) -> SeriesCollection:
    data = content.encode() if isinstance(content, str) else content
    (root / "series").write_bytes(data)
    return read(["series"], ReadOptions(root=root, **options))


def only(root: Path, content: str | bytes, **options: Any) -> Series:
    (series,) = collected(root, content, **options).series
    return series


def values(series: Series) -> dict[str, tuple[float, ...]]:
    return {point.label: point.values for point in series.observations}


def test_a_column_of_dates_and_one_of_numbers(tmp_path: Path) -> None:
    series = only(tmp_path, "date,speed\n2023-08-25,2.5\n2023-08-24,1.5\n")
    assert (series.metric, series.source) == ("speed", "series")
    assert values(series) == {"2023-08-24": (1.5,), "2023-08-25": (2.5,)}
    assert series.observations[0].when == datetime(2023, 8, 24, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "day;speed\n2023-08-24;1.5\n2023-08-25;2.5\n",
        "day\tspeed\n2023-08-24\t1.5\n2023-08-25\t2.5\n",
        "\ufeffday,speed\r\n2023-08-24,1.5\r\n2023-08-25,2.5\r\n",
        "# a comment\nday|speed\n2023-08-24|1.5\n2023-08-25|2.5\n",
        '"day", "speed"\n"2023-08-24", "1.5"\n"2023-08-25", "2.5"\n',
    ],
)
def test_delimiters_marks_and_headers(tmp_path: Path, text: str) -> None:
    series = only(tmp_path, text)
    assert series.metric == "speed"
    assert values(series) == {"2023-08-24": (1.5,), "2023-08-25": (2.5,)}


def test_without_a_header_or_labels_rows_are_numbered(tmp_path: Path) -> None:
    assert values(only(tmp_path, "3.5\n4.5\n")) == {"1": (3.5,), "2": (4.5,)}
    several = collected(tmp_path, "3,4.5\n3,4.25\n").series
    assert [series.metric for series in several] == ["column 1", "column 2"]


@pytest.mark.parametrize("text", ["commit,loss\n", "# nightly\ncommit,loss\n", "commit,loss"])
def test_a_header_alone_still_names_the_columns(tmp_path: Path, text: str) -> None:
    with pytest.raises(CannotVerify, match="found none; its columns are commit, loss"):
        collected(tmp_path, text)


def test_labels_with_letters_are_no_numbers_with_units(tmp_path: Path) -> None:
    series = only(tmp_path, "version,ms\n1k,2.5\n2k,3.5\n")
    assert values(series) == {"1k": (2.5,), "2k": (3.5,)}


def test_a_column_that_looks_like_numbers_is_not_left_out_in_silence(tmp_path: Path) -> None:
    found = collected(tmp_path, "date,ms,t\n2024-01-01,1.5,1 s\n2024-01-02,2.5,2 ms\n2024-01-03,2.5,3 us\n")
    assert [series.metric for series in found.series] == ["ms"]
    assert "left out, as they count rows or hold no plain numbers: 't'" in found.notes


def test_a_column_that_counts_the_rows_is_no_metric_unless_asked_for(tmp_path: Path) -> None:
    text = "date,rep,ms\n" + "".join(f"2024-01-0{n},{10 * n},{n % 2}.5\n" for n in range(1, 8))
    found = collected(tmp_path, text)
    assert [series.metric for series in found.series] == ["ms"]
    assert "left out, as they count rows or hold no plain numbers: 'rep'" in found.notes
    assert only(tmp_path, text, metrics=("rep",)).metric == "rep"
    alone = only(tmp_path, "".join(f"{n}\n" for n in range(9)))
    assert len(alone.observations) == 9, "the only numbers there are"


def test_empty_cells_are_missing_points_and_unreadable_ones_are_findings(tmp_path: Path) -> None:
    found = collected(tmp_path, "build,ms\n1,2.5\n2,\n3,NA\n4,fast\n5,3.5\n")
    (series,) = found.series
    assert [point.outcome for point in series.observations] == [
        Outcome.OK,
        Outcome.MISSING,
        Outcome.MISSING,
        Outcome.BROKEN,
        Outcome.OK,
    ]
    (finding,) = found.findings
    assert (finding.kind, finding.severity, finding.where) == ("unreadable", Severity.WARN, "line 5")
    assert "expected a number in column 'ms' on line 5, found 'fast'" in finding.message


def test_what_is_not_a_number_is_a_crash(tmp_path: Path) -> None:
    text = "build,loss\n1,2.5\n2,nan\n3,-inf\n"
    crashed = only(tmp_path, text).observations
    assert [point.signature for point in crashed[1:]] == ["the value is not a number (nan)", "the value is infinite"]
    assert {point.outcome for point in crashed[1:]} == {Outcome.CRASH}


def test_lines_and_delimiters_inside_quotes(tmp_path: Path) -> None:
    text = 'commit,ms\n"one, with\na second\u2028line",1\ntwo,2\nthree,3\n'
    assert list(values(only(tmp_path, text))) == ["one, with\na second\u2028line", "two", "three"]


def test_a_cell_that_is_far_too_long_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    found = collected(tmp_path, f"commit,ms\none,1\n{'x' * 200_000},2\ntwo,3\n")
    assert [finding.kind for finding in found.findings] == ["unreadable"]
    assert values(found.series[0]) == {"one": (1.0,), "two": (3.0,)}


def test_columns_with_brackets_in_their_names(tmp_path: Path) -> None:
    text = "build,time (ms)\n1,2.5\n2,3.5\n"
    assert values(only(tmp_path, text, metrics=("time (ms)",))) == {"1": (2.5,), "2": (3.5,)}
    with pytest.raises(UsageError, match=r"did you mean 'time \(ms\)'"):
        collected(tmp_path, text, metrics=("tme (ms)",))


def test_ragged_rows_are_told(tmp_path: Path) -> None:
    found = collected(tmp_path, "build,ms,mb\n1,2.5,3\n2,2.5\n3,2.5,3,9\n")
    assert [finding.kind for finding in found.findings] == ["ragged-row", "ragged-row"]
    assert [point.outcome for point in found.series[1].observations] == [Outcome.OK, Outcome.MISSING, Outcome.OK]


def test_columns_can_be_named(tmp_path: Path) -> None:
    text = "commit,branch,ms,mb,when\nab,main,1,5,2023-01-02\ncd,main,2,6,2023-01-01\n"
    series = only(tmp_path, text, metrics=("ms",))
    assert values(series) == {"cd": (2.0,), "ab": (1.0,)}, "ordered by the column that says when"
    assert values(only(tmp_path, text, x="mb", metrics=("ms",))) == {"5": (1.0,), "6": (2.0,)}
    assert [s.metric for s in collected(tmp_path, text, metrics=("m*",)).series] == ["ms", "mb"]
    for wrong in ({"x": "commits"}, {"metrics": ("mss",)}, {"time": "wen"}):
        with pytest.raises(UsageError, match=r"did you mean '(commit|ms|when)'"):
            collected(tmp_path, text, **wrong)


def test_a_time_column_that_does_not_say_when_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="found 'b' on line 3"):
        collected(tmp_path, "t,v\n2023-01-01,1\nb,2\n", time="t")


def test_a_branch_labels_nothing(tmp_path: Path) -> None:
    rows = "".join(f"main,{n / 7}\n" for n in range(1, 9))
    assert list(values(only(tmp_path, f"name,ms\n{rows}"))) == [str(n) for n in range(1, 9)]


def test_labels_that_stand_twice_are_repeats_of_one_point(tmp_path: Path) -> None:
    found = collected(tmp_path, "version,ms\n1.9,1\n1.10,2\n1.9,3\n1.10,\n1.11,5\n", x="version")
    (series,) = found.series
    assert values(series) == {"1.9": (1.0, 3.0), "1.10": (2.0,), "1.11": (5.0,)}
    assert any("2 labels occur more than once" in note for note in found.notes)


def test_moments_with_and_without_a_zone_in_one_column(tmp_path: Path) -> None:
    text = "at,ms\n2023-10-29T02:30:00+02:00,1\n2023-10-29T02:30:00+01:00,2\n2023-10-29T01:00:00,3\n"
    assert [point.values for point in only(tmp_path, text).observations] == [(1.0,), (3.0,), (2.0,)]


def test_since_is_a_label_or_a_moment(tmp_path: Path) -> None:
    text = "date,v\n" + "".join(f"2023-08-{day:02},{day}\n" for day in range(1, 11) if day != 5)
    for since in ("2023-08-08", "2023-08-07T12:00"):
        assert list(values(only(tmp_path, text, since=since))) == ["2023-08-08", "2023-08-09", "2023-08-10"]
    with pytest.raises(UsageError, match="expected --since to be a label or a moment"):
        collected(tmp_path, text, since="yesterday")
    with pytest.raises(UsageError, match="--since"):
        collected(tmp_path, "v\n1\n2\n", since="2023-08-04")


def test_better_is_by_name_by_glob_or_for_all(tmp_path: Path) -> None:
    text = "build,ms,mb,rate\n1,1,2,3\n2,1,2,3\n"
    found = collected(tmp_path, text, better={"ms": "equal", "m*": "lower", "": "higher"}).series
    assert [series.better for series in found] == ["equal", "lower", "higher"]


JSON = [
    ([{"commit": "ab", "ms": 1}, {"commit": "cd", "ms": 2}], {"ab": (1.0,), "cd": (2.0,)}),
    ({"ab": 1, "cd": 2}, {"ab": (1.0,), "cd": (2.0,)}),
    ({"about": "x", "results": [{"id": "ab", "ms": 1}, {"id": "cd", "ms": 2}]}, {"ab": (1.0,), "cd": (2.0,)}),
    ([1, 2], {"1": (1.0,), "2": (2.0,)}),
    ([{"commit": "ab", "ms": [1, 1.5]}, {"commit": "cd", "ms": [2, None]}], {"ab": (1.0, 1.5), "cd": (2.0,)}),
]


@pytest.mark.parametrize(("value", "expected"), JSON, ids=str)
def test_shapes_of_json(tmp_path: Path, value: Any, expected: dict[str, Any]) -> None:
    assert values(only(tmp_path, json.dumps(value))) == expected


def record(commit: str, at: int, value: float) -> dict[str, Any]:
    return {
        "timestamp": at,
        "metrics": [{"name": "load", "value": value, "unit": "tx/s"}, {"name": "p90", "value": 3, "unit": "ms"}],
        "attributes": {"branch": "main", "git_commit": commit * 20},
    }


def test_nested_metrics_newest_first_are_ordered_by_time(tmp_path: Path) -> None:
    records = [record("b2", 1690391261, 2.0), record("a1", 1690390497, 1.0)]
    for text in (json.dumps(records), "\n".join(map(json.dumps, records))):
        load, p90 = collected(tmp_path, text).series
        assert (load.metric, load.unit, p90.metric) == ("load", "tx/s", "p90")
        assert values(load) == {"a1a1a1a1a1": (1.0,), "b2b2b2b2b2": (2.0,)}
        assert load.observations[0].when == datetime.fromtimestamp(1690390497, UTC)


def test_every_list_of_records_in_a_document_is_read(tmp_path: Path) -> None:
    benches = {n: [{"name": "sort", "value": n + 0.5, "unit": "ns"}] for n in range(3)}
    cpu_records = [{"commit": {"id": str(n)}, "benches": bench} for n, bench in benches.items()]
    gpu_records = [{"commit": {"id": str(n)}, "benches": [{"name": "fill", "value": n}]} for n in (4, 5)]
    text = json.dumps({"version": 1, "cpu": cpu_records, "gpu": gpu_records})
    cpu, gpu = collected(tmp_path, text).series
    assert (cpu.metric, cpu.unit, cpu.source) == ("sort", "ns", "series cpu")
    assert values(cpu) == {"0": (0.5,), "1": (1.5,), "2": (2.5,)}
    assert (gpu.metric, gpu.source) == ("fill", "series gpu")
    assert only(tmp_path, text, metrics=("fill",)).metric == "fill"
    with pytest.raises(UsageError, match="expected --metric to name a column"):
        collected(tmp_path, text, metrics=("none",))


def test_the_records_that_are_nearest_are_meant(tmp_path: Path) -> None:
    # As Google Benchmark writes it: the caches of the machine are records, too.
    document = {
        "context": {"caches": [{"size": 1}, {"size": 2}]},
        "benchmarks": [{"name": "a", "real_time": 1.5}, {"name": "b", "real_time": 2.5}],
    }
    series = only(tmp_path, json.dumps(document))
    assert (series.metric, series.source) == ("real_time", "series")


def test_json_lines_with_a_cut_line(tmp_path: Path) -> None:
    found = collected(tmp_path, '{"step": 1, "loss": 2.5}\n{"step": 2, "loss": NaN}\n{"step": 3, "lo')
    assert [point.outcome for point in found.series[0].observations] == [Outcome.OK, Outcome.CRASH]
    assert [(finding.kind, finding.where) for finding in found.findings] == [("unreadable", "line 3")]


@pytest.mark.parametrize(
    "data", [b"", b"  \n", b"\x7fELF\0\0\0", b"[]", b"{}", b"[[1], [2, 3]]", b'{"a": ', b"\0" * 100]
)
def test_what_is_no_series_is_told(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(CannotVerify, match="expected series to be CSV, JSON"):
        collected(tmp_path, data)


@pytest.mark.parametrize("text", ["just one line of words", "a,b\nx,y\nz,w\n", '{"a": "b"}'])
def test_a_table_without_numbers_is_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(CannotVerify, match="expected a column of numbers in series"):
        collected(tmp_path, text)


@pytest.mark.parametrize(
    ("option", "said"),
    [({"table": "t"}, "an SQLite database for --table"), ({"stage": "0"}, "the journal of a hunt for --stage")],
)
def test_options_that_nothing_would_come_of_are_refused(tmp_path: Path, option: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=f"expected {said}, found series, which is none"):
        collected(tmp_path, "build,ms\n1,2\n", **option)


def test_a_file_that_is_not_there_cannot_be_verified(tmp_path: Path) -> None:
    with pytest.raises(CannotVerify, match="No such file"):
        read(["none.csv"], ReadOptions(root=tmp_path))


@pytest.mark.slow
def test_a_hundred_thousand_rows(tmp_path: Path) -> None:
    rows = "".join(f"{n},{n % 7 / 3}\n" for n in range(100_000))
    series = only(tmp_path, f"build,ms\n{rows}")
    assert len(series.observations) == 100_000
    assert series.observations[-1].label == "99999"


def test_the_real_series_of_a_database(shared_data: Path) -> None:
    found = read([str(shared_data / "series" / "tigerbeetle.json")])
    assert [(series.metric, len(series.observations)) for series in found.series][:2] == [
        ("load_accepted", 365),
        ("batch_p50", 365),
    ]
    when = [point.when for point in found.series[0].observations if point.when]
    assert when == sorted(when)


@given(data=st.binary(max_size=400))
def test_any_bytes_are_a_series_or_refused_in_words(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        found = collected(tmp_path_factory.getbasetemp(), data)
    except (CannotVerify, UsageError):
        return
    for series in found.series:
        for point in series.observations:
            assert bool(point.values) == (point.outcome is Outcome.OK)


@given(
    st.lists(
        st.tuples(st.integers(0, 9999), st.floats(allow_nan=False, allow_infinity=False)),
        min_size=2,
        unique_by=lambda row: row[0],
    ),
    st.sampled_from(",;\t|"),
)
def test_what_is_written_is_read(rows: list[tuple[int, float]], delimiter: str) -> None:
    text = f"build{delimiter}ms\n" + "".join(f"{n}{delimiter}{v!r}\n" for n, v in rows)
    (table,) = read_csv(text.encode(), "t")
    assert [(int(n), float(v)) for n, v in table.rows] == rows


def test_the_columns_of_a_header_alone_have_its_names(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("night,loss,speed\n")
    with pytest.raises(CannotVerify, match="its columns are night, loss, speed"):
        read(["empty.csv"], ReadOptions(root=tmp_path))
