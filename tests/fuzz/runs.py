"""Readers of what runs and hunts left, and of Python source."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from factories import event_files, evidence, hunt_files
from fuzz.reader import Read, Reader, in_file, reader
from fuzz.texts import GOLDENS
from karat.captures.records import read_journals
from karat.changepoints import signatures
from karat.changepoints.readers import read as changes_read
from karat.changepoints.readers.logs import grepped_logs, read_grepped, read_logs, read_names
from karat.changepoints.readers.sheets import ReadOptions
from karat.changepoints.series import Outcome
from karat.hunts.journal import Journal
from karat.hunts.model import Attempt, CommandRow, Decision, HuntRow, Metric, Point, Span, StageRow
from karat.hunts.probe.metrics import NoValue, RunOutput, Unverified, value_of
from karat.hunts.report import html as hunt_html, markdown as hunt_markdown
from karat.hunts.report.assemble import build_report
from karat.hunts.report.terminal import report_lines
from karat.hunts.settings import MetricSettings
from karat.policy import evidence as policy_evidence
from karat.policy.approvals.waivers import waivers_of
from karat.policy.scan.scanner import scan
from karat.policy.scan.source import Unreadable, parse
from karat.runs.read import read_run
from karat.settings import RecordSettings

_LOG_TEXT = (
    b" iteration       10/     100 | lm loss: 1.082E+01 | grad norm: 2.5 |\n iteration       11/     100 | lm loss: nan |\n"
    b'Traceback (most recent call last):\n  File "x.py", line 3, in f\n    raise ValueError(1)\nValueError: 1\n'
)  # fmt: skip
_LOG_PATTERNS = RecordSettings(log={"step": r"iteration +(\d+)", "lm loss": r"lm loss: ([0-9.E+-]+|nan)"})


@reader("event file")
def _events(folder: Path) -> Reader:
    made = [event_files.scalar_event("loss", step, 1.0 / (step + 1)) for step in range(5)]
    seed = event_files.event_file(folder / "events.out.tfevents.1.host", made).read_bytes()

    def read(data: bytes) -> None:
        path = folder / "events.out.tfevents.1.host"
        in_file(path, read_run)(data)
        # Framed anew, so that checksums fit and the message itself is read.
        in_file(path, read_run)(event_files.framed(made[0]) + event_files.framed(data))

    return Reader((seed, *made), read)


@reader("log of a run")
def _log(folder: Path) -> Reader:
    return Reader((_LOG_TEXT,), in_file(folder / "run.log", lambda path: read_run(path, _LOG_PATTERNS)))


@reader("JSON Lines or CSV of a run")
def _run_lines(folder: Path) -> Reader:
    seeds = (*GOLDENS["series-lines"], b"Wall time,Step,Value\n1.5,1,2.5\n2.5,2,nan\n", b"step,loss\n1,2\n2,\n3,inf\n")
    return Reader(seeds, in_file(folder / "run.csv", read_run))


@reader("crash")
def _crash(_: Path) -> Reader:
    more = (
        b"terminate called after throwing an instance of 'std::bad_alloc'\n",
        b"  + Exception Group Traceback (most recent call last):\n  | ExceptionGroup: x (1 sub-exception)\n  +-+---- 1 ----\n    | ValueError: 2\n",
        b"[rank0]: RuntimeError: CUDA error: out of memory\nSegmentation fault (core dumped)\n",
    )  # fmt: skip
    return Reader((_LOG_TEXT, *more), signatures.find_signature)


@reader("metric of a run")
def _metric(_: Path) -> Reader:
    asked = (
        MetricSettings(name="a", regex=r"loss: (\S+)", which="mean", unit="ms"),
        MetricSettings(name="b", json="a[0].b"),
        MetricSettings(name="c", json="a[0].b", file="f"),
    )

    def read(data: bytes) -> None:
        run = RunOutput(ran=hunt_files.ran(data), files={"f": data})
        for one in asked:
            try:
                value_of(one, run)
            except (NoValue, Unverified):
                continue

    return Reader((b"loss: 12 ms\nloss: 1,234.5\n", b'x\n{"a": [{"b": "1.5 ms"}]}\n', b'{"a": [{"b": 2}]}'), read)


@reader("JUnit report")
def _junit(_: Path) -> Reader:
    seed = (
        b'<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="p" tests="2"><testcase classname="a.T" name="t[1]" time="0.5"/>'
        b'<testcase classname="a.T" name="u" time="1,200.5"><failure message="x">&lt;y</failure></testcase></testsuite></testsuites>'
    )
    asked = [MetricSettings(name="a", junit="*", file="f", value=value) for value in ("seconds", "failed", "passed")]

    def read(data: bytes) -> None:
        for one in asked:
            try:
                value_of(one, RunOutput(ran=hunt_files.ran(), files={"f": data}))
            except NoValue:
                continue

    return Reader((seed,), read)


# Series of numbers, and hunts


def _changes(name: str, folder: Path, table: str = "") -> Read:
    options = ReadOptions(root=folder, table=table)

    def read(path: Path) -> None:
        for sheet in changes_read.read_file(path.name, options):
            changes_read.assemble(sheet, options)

    return in_file(folder / name, read)


@reader("CSV for changes")
def _changes_csv(folder: Path) -> Reader:
    seeds = (
        b"date,commit,speed,loss\n2026-01-01,abc1234,10.5,2\n2026-01-02,abc1235,10.6,\n2026-01-03,abc1236,nan,3\n",
        b"night;value\n2026-02-01;1.5\n2026-02-02;1.6\n", b"1.5\n2.5\n3\n", b"Name\tx\n20260101\t5\n",
    )  # fmt: skip
    return Reader(seeds, _changes("a.csv", folder))


@reader("JSON for changes")
def _changes_json(folder: Path) -> Reader:
    seeds = (
        b'[{"date": "2026-01-01", "speed": 1.5}, {"date": "2026-01-02", "speed": null}]', b'{"a": 1, "b": 2.5}',
        b'{"date": "2026-01-01", "speed": 1}\n{"date": "2026-01-02", "speed": 2}\n', b"[1, 2, 3.5]",
    )  # fmt: skip
    return Reader(seeds, _changes("a.json", folder))


@reader("logs for changes")
def _changes_logs(folder: Path) -> Reader:
    options = ReadOptions(root=folder, metrics=(r"speed: (\S+)",))
    for day in range(1, 4):
        (folder / f"2026-01-0{day}.log").write_bytes(b"speed: 10.%d\n" % day)

    def read(data: bytes) -> None:
        first, _, names = data.partition(b"\n===\n")
        (folder / "2026-01-02.log").write_bytes(first)
        changes_read.assemble(read_logs([str(folder)], options), options)
        read_names(names.decode("utf-8", "replace").splitlines())
        grepped = grepped_logs(data)
        if grepped:
            read_grepped(grepped, "stdin", options)

    seeds = (
        b"speed: 10.5\n===\n2026-01-01.log\nnight-2026-01-02-abcdef1.log", b"2026-01-01.log:speed: 10.5\n2026-01-02.log:speed: 10.7\n",
        b"\x1b[1mspeed: 1,234.5\x1b[0m\n===\nrun_10.log\nrun_9.log\n",
    )  # fmt: skip
    return Reader(seeds, read)


@reader("SQLite for changes")
def _changes_sqlite(folder: Path) -> Reader:
    path = folder / "made.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA page_size = 512")
        db.execute("CREATE TABLE runs (date TEXT, speed REAL, n INTEGER)")
        db.execute("CREATE VIEW v AS SELECT date, speed * 2 AS twice FROM runs")
        db.executemany("INSERT INTO runs VALUES (?, ?, ?)", [(f"2026-01-{d:02}", 1.0 + d, d) for d in range(1, 9)])
    db.close()
    return Reader((path.read_bytes(),), _changes("a.db", folder, "v"))


@reader("journal of a hunt")
def _journal(folder: Path) -> Reader:
    path = folder / "made.hunt"
    row = HuntRow(
        name="n", file="hunt.toml", root=str(folder), hunt="ab12", settings="{}", command=("python", "probe.py"),
        metrics=(Metric(name="speed", better="higher", unit="x"),),
    )  # fmt: skip
    points = tuple(Point(id=f"p{i}", label=f"p{i}") for i in range(4))
    span = Span(metric="speed", good=1, bad=2, before=5.0, after=3.0, confidence=0.9, kind="regression", between=(1, 2))
    with Journal.create(path, row) as journal:
        journal.begin_stage(StageRow(key="0", title="values", timeline="values"), points)
        for point in points:
            made = Attempt(stage="0", point=point.id, number=1, outcome=Outcome.OK, samples={"speed": (5.0, 5.5)})
            command = CommandRow(role="measure", argv=("python", "probe.py"), exit_code=0)
            journal.add_attempt(made, log=b"speed: 5\n", commands=[command])
        journal.save_decision("0", Decision(asks=(), spans=(span,), notes=("odd",)))

    def read(path: Path) -> None:
        with Journal(path) as journal:
            report = build_report(journal)
            hunt_html.render(report)
            hunt_markdown.render(report)
            list(report_lines(report, width=80))
            for stage in journal.stages():
                for point in journal.points(stage.key):
                    journal.attempts(stage.key, point.id)

    return Reader((path.read_bytes(),), in_file(folder / "a.hunt", read))


@reader("journal of evidence")
def _evidence(folder: Path) -> Reader:
    path = evidence.journal(folder / "j", evidence.op_test(evidence.evidence()))
    return Reader((path.read_bytes(),), in_file(path, lambda _: policy_evidence.merge([path.parent])))


@reader("journal of captures")
def _captures(folder: Path) -> Reader:
    seed = b'{"worker":"main","number":1,"event":"staged","node":"t","path":"a/b"}\n{"worker":"main","number":2,"event":"note","kind":"x"}\n'
    return Reader((seed,), in_file(folder / "journal-r-1.jsonl", lambda _: read_journals(folder, "r")))


# Source text

_OP_TEST = b"""
import unittest
import numpy as np
from op_test import OpTest, skip_check_grad_ci
from . import helpers as h

@skip_check_grad_ci(reason="no double")
class TestTanh(OpTest):
    def setUp(self):
        self.op_type = "tanh"
        self.dtype = np.float32 if h.FAST else np.float64
        x = np.random.uniform(0.1, 1, [11, 17]).astype(self.dtype)
        self.inputs, self.outputs = {"X": x}, {"Out": np.tanh(x)}

    def test_check_grad(self):
        if self.dtype == np.float16:
            return
        try:
            self.check_grad(["X"], "Out", max_relative_error=0.05, no_grad_set={"Y"})
        except AssertionError:
            pass

for name in ("a", "b"):
    globals()[f"Test{name}"] = type(name, (TestTanh,), {"check_grad": lambda self: None})
TestTanh.test_check_grad = unittest.skipIf(True, "x")(TestTanh.test_check_grad)
"""


@reader("Python source")
def _source(folder: Path) -> Reader:
    def read(path: Path) -> None:
        scan([str(path)])
        waivers_of(parse(path.read_bytes()), "test_a.py")

    return Reader((_OP_TEST, _OP_TEST.split(b"for name")[0]), in_file(folder / "test_a.py", read), (Unreadable,))
