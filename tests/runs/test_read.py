from __future__ import annotations

import json
import math
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from factories.event_files import event_file, run_folder, scalar_event
from karat.findings import Severity
from karat.goldens.shapes import Document, Reading, Series, Table
from karat.goldens.text_file import LONGEST_LINE
from karat.runs.read import read_run
from karat.settings import RecordSettings

LOG = RecordSettings(
    log={"lm loss": r"lm loss: ([0-9.E+\-naif]+)", "grad norm": r"grad norm: (\S+)", "step": r"iteration +([0-9,]+)/"}
)


def curves(reading: Reading) -> dict[str, dict[int, float]]:
    assert isinstance(reading.golden, Series), reading.findings
    return {
        name: dict(zip(metric.steps.tolist(), metric.values.tolist(), strict=True))
        for name, metric in reading.golden.metrics.items()
    }


def kinds(reading: Reading) -> list[tuple[str, str]]:
    return [(f.kind, f.severity.value) for f in reading.findings]


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_json_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "x.anything", '{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.25}\n')
    reading = read_run(path)
    assert (curves(reading), reading.findings, reading.format) == ({"loss": {1: 2.5, 2: 2.25}}, (), "series-lines")


@pytest.mark.parametrize("key", ["step", "iteration", "iter", "epoch", "Step", "global_step"])
def test_csv_whose_first_column_counts_steps_is_a_series(tmp_path: Path, key: str) -> None:
    path = write(tmp_path / "x", f"{key},loss,lr\n1,2.5,1e-3\n2,nan,\n3.0,-inf,2E-3\n")
    reading = read_run(path)
    assert reading.format == "series-csv"
    assert str(curves(reading)) == str({"loss": {1: 2.5, 2: math.nan, 3: -math.inf}, "lr": {1: 1e-3, 3: 2e-3}})
    assert reading.findings == ()


def test_what_tensorboard_exports_as_csv_is_a_series(tmp_path: Path) -> None:
    reading = read_run(write(tmp_path / "x", "Wall time,Step,Value\n1.5,1,0.5\n2.5,2,0.25\n"))
    assert curves(reading) == {"Value": {1: 0.5, 2: 0.25}}


@pytest.mark.parametrize(
    "text",
    [
        "name,accuracy,graph_breaks\nresnet,pass,0\n",
        "epoch,name,accuracy\n1,resnet,0.5\n",
        "step,dtype,loss\n1,bf16,0.5\n1,fp32,0.5\n",
    ],
)
def test_csv_whose_rows_have_names_is_a_table(tmp_path: Path, text: str) -> None:
    assert isinstance(read_run(write(tmp_path / "x", text)).golden, Table)


def test_csv_of_steps_is_a_table_for_those_who_have_one(tmp_path: Path) -> None:
    path = write(tmp_path / "x", "step,loss\n1,2.5\n")
    assert isinstance(read_run(path, shape="table").golden, Table)


def test_odd_csv_is_told_line_by_line(tmp_path: Path) -> None:
    path = write(tmp_path / "x", "step,loss,note\n1,2.5,a\n2,oops,b\nthree,1,c\n4,1\n1,2.0,d\n")
    reading = read_run(path)
    assert kinds(reading) == [
        ("unreadable", "fail"),
        ("ragged-row", "fail"),
        ("superseded", "info"),
        ("superseded", "warn"),
        ("unreadable", "fail"),
    ]
    places = ["line 4", "line 5", "line 6", "step 1", "line 3"]
    assert [f.where for f in reading.findings] == places
    assert curves(reading)["loss"][1] == 2.0
    assert isinstance(reading.golden, Series)
    assert reading.golden.others == {"note": {"1": "d", "2": "b"}}
    assert all(f.path == str(path) for f in reading.findings)


def test_csv_that_is_none_is_told(tmp_path: Path) -> None:
    reading = read_run(write(tmp_path / "x", "step,loss\n1,2.5\n2," + "9" * 200_000 + "\n"))
    assert (reading.golden, kinds(reading)) == (None, [("unreadable", "fail")])
    assert "expected CSV, found field larger" in reading.findings[0].message


def test_csv_that_catches_up_after_a_restart_is_only_told(tmp_path: Path) -> None:
    path = write(tmp_path / "x", "step,loss\n1,2.5\n2,2.25\n3,2\n2,2.5\n3,1\n")
    reading = read_run(path)
    assert {severity for _, severity in kinds(reading)} == {"info"}
    assert curves(reading)["loss"] == {1: 2.5, 2: 2.5, 3: 1.0}


def test_a_log_gives_what_its_patterns_find(tmp_path: Path) -> None:
    text = (
        "starting\n"
        " iteration        1/      50 | lm loss: 1.084E+01 | grad norm: 2.5 |\n"
        " iteration    1,002/      50 | lm loss: nan |\r\n"
        "   grad norm: inf\n"
    )
    reading = read_run(write(tmp_path / "x.log", text), LOG)
    assert reading.format == "log"
    assert str(curves(reading)) == str({"lm loss": {1: 10.84, 1002: math.nan}, "grad norm": {1: 2.5, 1002: math.inf}})


def test_odd_logs(tmp_path: Path) -> None:
    text = "lm loss: 3\n iteration 1/ lm loss: 1..2\n iteration 2/ lm loss: 1\n iteration 2/ lm loss: 2\n"
    reading = read_run(write(tmp_path / "x", text), LOG)
    assert kinds(reading) == [
        ("unreadable", "warn"),  # a value before any step
        ("unreadable", "fail"),
        ("lost-metric", "warn"),  # no grad norm anywhere
        ("superseded", "info"),
    ]
    assert curves(reading)["lm loss"][2] == 2.0


def test_long_lines_progress_bars_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    long = b"x" * (10 * LONGEST_LINE) + b" iteration 9/ lm loss: 9\n"
    text = b"\xff\x00 iteration 1/ lm loss: 1\r 50%\r iteration 2/ lm loss: 2\n"
    reading = read_run(write(tmp_path / "x", long + text), LOG)
    assert curves(reading)["lm loss"] == {1: 1.0, 2: 2.0}
    assert ("unreadable", "info") in kinds(reading)
    assert "1 line is longer" in reading.findings[-1].message


def test_a_pattern_that_is_slow_on_long_lines_meets_none(tmp_path: Path) -> None:
    # Its time grows with the square of a line's length: on the whole of this one, hours.
    settings = RecordSettings(log={"step": r"step (\d+)", "x": r"a*b(\d+)"})
    path = write(tmp_path / "x", b"a" * 2_000_000 + b"\n" + b"step 1 aab7\n")
    assert curves(read_run(path, settings)) == {"x": {1: 7.0}}


def test_a_log_that_ends_behind_where_it_was_is_told(tmp_path: Path) -> None:
    def log(*steps: int) -> Reading:
        text = "".join(f" iteration {s}/ lm loss: 1 grad norm: 2\n" for s in steps)
        return read_run(write(tmp_path / "x", text), LOG)

    (finding,) = log(1, 2, 3, 4, 2, 3).findings
    assert (finding.kind, finding.severity) == ("superseded", Severity.WARN)
    assert finding.numbers == {"last_step": 3, "furthest_step": 4}
    assert [f.severity for f in log(1, 2, 3, 2, 3, 4).findings] == [Severity.INFO]
    assert log(1, 3, 2).findings == ()  # only out of order


def test_what_patterns_found_in_vain_is_told_with_the_rest(tmp_path: Path) -> None:
    reading = read_run(write(tmp_path / "x", "some words, lm loss: 3 and no step at all\n"), LOG)
    assert reading.golden is None
    assert kinds(reading)[0] == ("unreadable", "warn")
    assert "without one; it was left out" in reading.findings[0].message


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+b", "(.*)*b"])
def test_a_search_without_end_is_called_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    monkeypatch.setattr("karat.system.time_limit.PERIOD", 0.05)
    before = signal.getsignal(signal.SIGVTALRM)
    settings = RecordSettings(log={"step": r"step (\d+)", "x": pattern})
    path = write(tmp_path / "x", "step 1\nstep 2 " + "a" * 60 + "\n")
    reading = read_run(path, settings)
    assert (reading.golden, kinds(reading)) == (None, [("unreadable", "fail")])
    assert 'the pattern of "x" to be done with line 2' in reading.findings[0].message
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)
    assert signal.getsignal(signal.SIGVTALRM) == before


@pytest.mark.slow
def test_many_short_searches_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("karat.system.time_limit.PERIOD", 0.1)
    text = "".join(f" iteration {s}/ lm loss: {s} grad norm: 2\n" for s in range(100_000))
    reading = read_run(write(tmp_path / "x", text), LOG)
    assert len(curves(reading)["lm loss"]) == 100_000


def test_a_log_is_read_in_another_thread_too(tmp_path: Path) -> None:
    path = write(tmp_path / "x", " iteration 1/ lm loss: 1 grad norm: 2\n")
    with ThreadPoolExecutor(1) as pool:
        assert curves(pool.submit(read_run, path, LOG).result())["lm loss"] == {1: 1.0}


def test_a_log_without_patterns_says_what_it_needs(tmp_path: Path) -> None:
    reading = read_run(write(tmp_path / "x.log", "iteration 1: all is well, it seems to me\n"))
    assert reading.golden is None
    assert "[record] log" in (reading.findings[-1].next or "")


def test_patterns_do_not_hide_goldens(tmp_path: Path) -> None:
    golden = {"lm loss": {"start_step": 1, "end_step": 1, "step_interval": 1, "values": {"1": 2.5}}}
    path = write(tmp_path / "x", json.dumps(golden))
    assert read_run(path, LOG).format == "series-json"
    assert isinstance(read_run(write(path, '{"a": [1]}'), LOG).golden, Document)


def test_a_folder_is_one_run(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run" / "tb", {"loss": {1: 2.5, 2: 2.0}})
    write(tmp_path / "run" / "stdout.txt", "hello")
    event_file(folder / "second", [scalar_event("loss", 3, 1.5, 9000.0)])
    reading = read_run(tmp_path / "run")
    assert (reading.format, curves(reading)) == ("tensorboard", {"loss": {1: 2.5, 2: 2.0, 3: 1.5}})


def test_several_runs_in_a_folder_must_be_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run_folder(tmp_path / name, {"loss": {1: 2.5}})
    reading = read_run(tmp_path)
    assert reading.golden is None
    assert "found 2 runs: a, b" in reading.findings[0].message
    assert str(tmp_path / "a") in (reading.findings[0].next or "")
    run_folder(tmp_path / "own", {"lr": {1: 1.0}})
    (tmp_path / "own").rename(tmp_path / "a" / "below")
    reading = read_run(tmp_path / "a")
    assert curves(reading) == {"loss": {1: 2.5}}
    assert kinds(reading) == [("not-refreshed", "info")]


def test_folders_without_events(tmp_path: Path) -> None:
    assert kinds(read_run(tmp_path)) == [("unreadable", "fail")]
    write(tmp_path / "a.jsonl", '{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.25}\n')
    assert curves(read_run(tmp_path)) == {"loss": {1: 2.5, 2: 2.25}}
    write(tmp_path / "b.jsonl", "{}")
    assert "2 files and no event file" in read_run(tmp_path).findings[0].message


def test_events_without_scalars_are_empty(tmp_path: Path) -> None:
    reading = read_run(event_file(tmp_path / "e", []))
    assert (reading.golden, kinds(reading)) == (None, [("empty", "fail")])


def test_a_damaged_first_record_is_known_by_its_name(tmp_path: Path) -> None:
    path = event_file(tmp_path / "events.out.tfevents.1", [scalar_event("x", 1, 1.0)])
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(bytes(data))
    reading = read_run(path)
    assert reading.findings[0].numbers["offset"] == 0


def test_what_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    assert kinds(read_run(tmp_path / "nothing")) == [("cannot-read", "fail")]
    assert kinds(read_run(write(tmp_path / "empty", b""))) == [("empty", "fail")]
    os.mkfifo(tmp_path / "pipe")
    assert kinds(read_run(tmp_path / "pipe")) == [("cannot-read", "fail")]
    if os.geteuid():
        path = write(tmp_path / "secret", "{}")
        path.chmod(0)
        assert kinds(read_run(path)) == [("cannot-read", "fail")]


def test_a_short_run_is_said_to_be_one(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "a", {"loss": {s: 1 / s for s in range(1, 14)}})
    (finding,) = read_run(folder, RecordSettings(steps=50)).findings
    assert (finding.kind, finding.severity) == ("short-run", Severity.FAIL)
    assert finding.numbers == {"last_step": 13, "expected_last_step": 50}
    assert read_run(folder, RecordSettings(steps=13)).findings == ()


def test_tags_that_match_nothing_name_those_there_are(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "a", {"loss": {1: 1.0}, "lr": {1: 1.0}})
    reading = read_run(folder, RecordSettings(tags=("lm*",)))
    assert reading.golden is None
    assert "expected names that match lm*, found loss, lr" in reading.findings[0].message


@given(st.binary(max_size=300), st.booleans())
def test_no_bytes_make_it_raise(data: bytes, logs: bool) -> None:  # noqa: FBT001
    from tempfile import NamedTemporaryFile

    with NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        reading = read_run(Path(file.name), LOG if logs else RecordSettings())
    assert reading.golden is not None or any(f.severity is Severity.FAIL for f in reading.findings)


@given(st.text("stepiraonl,0123456789.\nE-+\"' \r#", max_size=200).map(lambda tail: "step,a\n" + tail))
def test_no_csv_makes_it_raise(text: str) -> None:
    from tempfile import NamedTemporaryFile

    with NamedTemporaryFile() as file:
        file.write(text.encode())
        file.flush()
        reading = read_run(Path(file.name))
    assert reading.format == "series-csv"
    if isinstance(reading.golden, Series):
        for metric in reading.golden.metrics.values():
            assert np.all(np.diff(metric.steps) > 0)
