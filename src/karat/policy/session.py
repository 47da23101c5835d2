"""A pytest session that leaves evidence, and holds itself to the policy if asked.

Registered by `karat.policy.plugin` only for those who asked. Under pytest-xdist the controller names session and
folder and judges at the end; every worker keeps its own journal.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from karat.findings import KaratError
from karat.gradients import session as events
from karat.policy.journal import Collected, ItemOutcome, Recorder, unit_of
from karat.report.words import cut, log_line

_NARROWING = ("keyword", "markexpr", "lf", "deselect", "ignore", "ignore_glob", "stepwise")
_KEY = "karat_policy"
_REASON = 300
_PHASES = ("failed", "skipped", "passed")
"""The outcomes of a phase, gravest first; other plugins have words of their own (`rerun`) for what is tried again."""
_LIST_ONLY = ("collectonly", "showfixtures", "show_fixtures_per_test", "setuponly", "setupplan")


def is_op_test(kind: object) -> bool:
    """Whether a class is an op test; who never imported the base class has none."""
    base = getattr(sys.modules.get("karat.optests.op_test"), "OpTest", None)
    return base is not None and isinstance(kind, type) and issubclass(kind, base)


def spec_op(item: pytest.Item) -> str | None:
    """The op of an item that was made from an `OpSpec`, else None."""
    made = getattr(sys.modules.get("karat.optests.op_spec"), "OpCase", None)
    params = getattr(getattr(item, "callspec", None), "params", {})
    case = params.get("case")
    return str(case.spec.op) if made is not None and isinstance(case, made) else None


def unit_of_item(item: pytest.Item) -> str:
    """The test that an item belongs to; each op of a class made from specs is a test of its own."""
    op = spec_op(item)
    return unit_of(item.nodeid) if op is None else f"{unit_of(item.nodeid)}[{op}]"


class GateSession:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._worker: Any = getattr(config, "workerinput", None)
        self._shared: tuple[str, str, bool] | None = None  # Folder and session, and whether anything was left out.
        self._recorder: Recorder | None = None
        self._stop: Callable[[], None] | None = None
        self._scratch: str | None = None
        self._found: Counter[str] = Counter()  # Test → its items, before and (kept) after everybody had a say in them.
        self._kept: Counter[str] = Counter()
        self._op_tests: dict[str, str | None] = {}
        self._noted: set[str] = set()
        self._reports: list[pytest.TestReport] = []
        self._ran = 0
        self._uncollected: dict[str, None] = {".": None}
        """As in the journal's last line; the whole session, until it has been collected."""
        self._lines: list[str] = []

    # Beginning

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Before any test, and before xdist starts its workers."""
        if any(self._config.getoption(word, False) for word in _LIST_ONLY):
            return
        self._shared = (self._worker or {}).get(_KEY)
        if self._shared is None:
            asked = self._config.getoption("karat_evidence") or os.environ.get("KARAT_EVIDENCE", "")
            if not asked:
                self._scratch = tempfile.mkdtemp(prefix="karat-evidence-")
            folder = str(self._scratch or self._config.invocation_params.dir / asked)
            # Whether paths or options left anything out.
            source = getattr(self._config, "args_source", None)
            below = self._config.invocation_params.dir != self._config.rootpath
            narrowed = source is None or source.name == "ARGS" or (source.name == "INVOCATION_DIR" and below)
            narrowed |= any(self._config.getoption(option, None) for option in _NARROWING)
            self._shared = folder, os.urandom(6).hex(), narrowed
        name = self._worker["workerid"] if self._worker else "main"
        folder, session, _ = self._shared
        self._recorder = Recorder(folder, session=session, worker=name, suite=self._config.rootpath)
        try:
            self._recorder.begin()
        except KaratError as error:
            raise pytest.UsageError(f"{error}\nnext: {error.next_command}") from error
        self._stop = events.listen(self._hear)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hands folder and session to a worker of xdist."""
        if self._shared is not None:
            node.workerinput[_KEY] = self._shared

    # Collecting

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Whoever is interrupted here does not know its tests."""
        done = yield
        self._uncollected.pop(".")
        return done

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """What cannot be imported may hold op tests."""
        if report.failed:
            self._uncollected[report.nodeid] = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, object, object]:
        """Sees the items before anybody takes some away."""
        for item in items:
            unit = unit_of_item(item)
            self._found[unit] += 1
            if self._found[unit] > 1:
                continue
            kind, op = getattr(item, "cls", None), spec_op(item)
            if op is not None or is_op_test(kind):
                self._op_tests[unit] = op
        return (yield)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._kept = Counter(map(unit_of_item, session.items))
        for unit in sorted(self._op_tests):
            self._note_collected(unit)

    def _note_collected(self, unit: str) -> None:
        """What is known of one test before it runs."""
        if unit in self._noted or self._recorder is None:
            return
        self._noted.add(unit)
        total = self._found[unit]
        names = unit.partition("::")[2].partition("[")[0]
        # An argument may name an item of a test, and not the whole: `test_a.py::TestA::test_b`, `…::test_c[x]`.
        inner = [arg.partition("::")[2] for arg in self._config.args if "::" in arg]
        in_part = [one for one in inner if one != names and unit_of(f"f::{one}").partition("::")[2] == names]
        if in_part:
            total += 1  # how many there are, nobody looked
        kept, op, is_one = self._kept[unit], self._op_tests.get(unit), unit in self._op_tests
        self._recorder.note(Collected(test=unit, op=op, selected=kept, deselected=total - kept, op_test=is_one))

    # Tests

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Events while an item runs belong to its test."""
        if self._recorder is None:
            return (yield)
        unit = self._recorder.current = unit_of_item(item)
        try:
            return (yield)
        finally:
            self._recorder.current = None
            reports, self._reports = self._reports, []
            self._ran += 1
            if unit in self._noted:
                self._note_outcome(unit, item.nodeid, reports)

    def _hear(self, event: events.Event) -> None:
        if self._recorder is not None:
            unit = self._recorder.current or event.test
            if unit:  # events while tests are collected are nobody's evidence
                self._note_collected(unit)
                self._recorder.tell(event)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gathers the phases of an item; on the controller, only what its worker cannot tell any more."""
        if str(report.when) == "???":  # the phase that xdist gives to a test in which its worker died
            self._note_outcome(unit_of(report.nodeid), report.nodeid, [report])
        elif self._recorder is not None and self._recorder.current and report.outcome in _PHASES:
            self._reports.append(report)

    def _note_outcome(self, unit: str, node: str, reports: list[pytest.TestReport]) -> None:
        if self._recorder is not None and reports:
            # The gravest phase speaks for the item; of several, the first.
            worst = min(reports, key=lambda one: _PHASES.index(one.outcome))
            if isinstance(worst.longrepr, tuple):
                text = str(worst.longrepr[2]).removeprefix("Skipped: ")
            else:
                crash = getattr(worst.longrepr, "reprcrash", None)
                text = str(getattr(crash, "message", worst.longrepr or ""))
            reason = "" if worst.passed else cut(text.strip().partition("\n")[0], _REASON)
            self._recorder.note(ItemOutcome(test=unit, item=node, outcome=worst.outcome, reason=reason))

    # End

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The last line of the journal; the judgement, if somebody asked for it."""
        if self._stop is None or self._recorder is None or self._shared is None:
            return
        self._stop()
        stopped = bool(session.shouldstop or session.shouldfail)
        folder, name, narrowed = self._shared
        whole = not narrowed and not stopped and int(session.exitstatus) in {0, 1}
        self._recorder.end(int(session.exitstatus), ran=self._ran, uncollected=self._uncollected, whole=whole)
        if self._worker is None and self._config.getoption("karat_policy"):
            try:
                code, self._lines = judge(Path(folder), name, self._config.rootpath)
            except KaratError as error:
                code = int(error.exit_code)
                self._lines = [f"karat: {error}", f"next: {error.next_command}"]
            if code and int(session.exitstatus) == 0:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._lines:
            terminalreporter.section("karat: gradient policy")
            for line in self._lines:
                terminalreporter.write_line(log_line(line))


def judge(folder: Path, session: str, root: Path) -> tuple[int, list[str]]:
    """The exit code and the report of one session."""
    from karat.config import load
    from karat.policy.evidence import merge
    from karat.policy.gate.decision import gate, lines
    from karat.policy.gate.project import policy_of
    from karat.report.words import printable
    from karat.system.dates import day

    merged = merge([folder], session=session)
    config = load(root)
    complete = config.policy.complete and merged.whole
    today = day(os.environ)
    gated = gate(merged, policy_of(config, root, today=today, complete=complete))
    if merged.journals and not complete:
        # Whoever runs one plain test need not hear that it is no op test; pytest reports a run without tests.
        kept = tuple(one for one in gated.findings if one.kind != "nothing-compared")
        gated = msgspec.structs.replace(gated, findings=kept)
    report = [printable(line) for line in lines(gated, today=today)]
    after = next((f.next for f in gated.findings if f.next and f.severity.value == "fail"), None)
    return int(gated.exit_code), [*report, *([f"next: {printable(after)}"] if after else [])]
