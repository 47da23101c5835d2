"""Capture in a pytest session: cases are staged while a test runs and published once all of it passed.

Registered by `karat.captures.plugin` only if a capture directory is named. Under pytest-xdist the
controller makes the directory, names the session and sums up; workers stage and publish.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from karat.bundles.compare import CONTROLS
from karat.captures.check import CaseToCapture
from karat.captures.functions import sessions
from karat.captures.plugin import marker_options
from karat.captures.records import JournalEntry, mark_missing, merge, read_journals, sweep
from karat.captures.session import FailedCase, Session, StagedCase, capture_directory, prepare, session_name
from karat.findings import Finding, KaratError, Severity, UsageError
from karat.report.words import log_line
from karat.settings import BundleSettings
from karat.system.ci import in_ci
from karat.system.command import Command

_SHOWN = 20
_ONLY_LIST = ("collectonly", "showfixtures", "show_fixtures_per_test", "setuponly", "setupplan")
_FORKED = KaratError(
    "it was checked in a process that the test forked, which never learns how the test ends",
    next_command="golden.check(…) in the test's own process",
)


class RunningTest:
    def __init__(self, item: pytest.Item) -> None:
        self.item = item
        self.taken: list[StagedCase | FailedCase] = []
        self.failed = False
        self.pid = os.getpid()
        self._taken_before: list[int] = []  # How much was taken when each of the running subtests began.

    def in_subtest(self, entered: bool) -> None:  # noqa: FBT001 - in or out
        if entered:
            self._taken_before.append(len(self.taken))
        else:
            self._taken_before.pop()

    def judge(self, report: pytest.TestReport) -> list[StagedCase | FailedCase]:
        """What to drop now: what a skipped subtest took itself. Anything else that did not pass fails the attempt."""
        if not report.skipped or not self._taken_before:
            self.failed |= not report.passed
            return []
        kept = self._taken_before[-1]
        own, self.taken = self.taken[kept:], self.taken[:kept]
        return own


class CapturePlugin:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._worker_input: Any = getattr(config, "workerinput", {}).get("karat")
        self._header: list[str] = []
        self._from_workers: list[JournalEntry] = []
        self._summary: CaptureSummary | None = None
        self.settings = BundleSettings()
        self.session: Session | None = None  # None until the session starts, and if tests are only listed.
        self.test: RunningTest | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Open the session before any test, and before xdist's workers: an unusable directory fails here."""
        if any(self._config.getoption(word, False) for word in _ONLY_LIST):
            return
        from karat.config import load

        try:
            root, started = self._config.rootpath, self._config.invocation_params.dir
            root = root if root.is_relative_to(started) else started
            self.settings = load(root).bundles
            if self._worker_input:
                directory, name, run = msgspec.json.decode(self._worker_input, type=tuple[str, str, str])
            else:
                place = capture_directory(self._config.getoption("karat_capture"), os.environ, started)
                assert place is not None, "the plugin is registered only if a directory was named"  # noqa: S101
                name = session_name(self._config.getoption("karat_session"), os.environ)
                prepare(place)
                sweep(place.path)
                self._header = [f"karat: capturing into {place.path} ({place.origin}), session {name}"]
                directory, run = str(place.path), os.urandom(6).hex()
            self.session = Session(
                Path(directory),
                name,
                run=run,
                worker=getattr(self._config, "workerinput", {}).get("workerid", "main"),
                root=root,
            )
        except UsageError as error:
            raise pytest.UsageError(f"{error}\nnext: {error.next_command}") from error
        sessions.append(self)

    def pytest_report_header(self) -> list[str]:
        return self._header

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hand directory and session to a worker of xdist."""
        if self.session is not None:
            told = str(self.session.directory), self.session.name, self.session.run
            node.workerinput["karat"] = msgspec.json.encode(told).decode()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over the journal of a worker; one that died has left it on disk."""
        entries = getattr(node, "workeroutput", {}).get("karat")
        if entries:
            self._from_workers += msgspec.json.decode(entries, type=list[JournalEntry])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """An attempt begins; a rerun of a failed test is another one."""
        self.test = RunningTest(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Publish or drop after teardown; a subtest that does not pass fails the whole attempt."""
        report = yield
        if self.test is not None and self.session is not None:
            for taken in self.test.judge(report):
                self.session.drop(taken)
            if call.when == "teardown":
                self._settle(self.session, self.test)
        if call.when == "teardown":
            self.test = None
        return report

    def _settle(self, session: Session, test: RunningTest) -> None:
        for taken in test.taken:
            if test.failed:
                session.drop(taken)
            elif isinstance(taken, StagedCase):
                session.publish(taken)

    def capture(self, case: CaseToCapture) -> Path | None:
        """Stage a case for the running test, unless its marker or suite is left out; returns its future folder."""
        if self.session is None or self.test is None:
            return None
        marker, suite = marker_options(self.test.item), case.identity.suite
        wanted = marker.get("capture")
        if wanted is None and not (wanted := self.settings.chooses(suite)):
            self.session.journal.note("left", path=suite)  # so that a misspelt suite is noticed
        if not wanted:
            return None
        if self.test.pid != os.getpid():
            self.session.refuse(case.identity, _FORKED)
            return None
        raw = case.raw or self._config.getoption("karat_raw") or self.settings.raw
        staged = self.session.stage(msgspec.structs.replace(case, raw=raw))
        self.test.taken.append(staged)
        return self.session.directory / staged.claim.path if isinstance(staged, StagedCase) else None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Sum up, on the controller; a capture that went wrong is seen in the exit code."""
        if self in sessions:
            sessions.remove(self)
        if self.session is None:
            return
        if self.test is not None:  # interrupted in the middle of a test
            self.test.failed = True
            self._settle(self.session, self.test)
        self.session.close()
        entries = self.session.journal.entries
        if self._worker_input:
            self._config.workeroutput["karat"] = msgspec.json.encode(entries).decode()  # type: ignore[attr-defined]
            return
        sweep(self.session.directory)
        on_disk = read_journals(self.session.records, self.session.run)
        lines = mark_missing(merge(on_disk, self._from_workers, entries), self.session.directory)
        self._summary = summarize(list(lines))
        vacuous = self._summary.vacuous and self._config.getoption("karat_strict_vacuous")
        failed = vacuous or self._summary.is_failure(strict=self._is_strict())
        if session.exitstatus == pytest.ExitCode.OK and failed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _is_strict(self) -> bool:
        asked: bool | None = self._config.getoption("karat_strict")
        return in_ci() if asked is None else asked

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._summary is None or self.session is None:
            return
        terminalreporter.section("karat: captured goldens")
        for line in self._summary.lines(self.session.directory, strict=self._is_strict()):
            terminalreporter.write_line(log_line(line))


class CaptureSummary(msgspec.Struct, frozen=True, kw_only=True):
    captured: int
    size: int
    dropped: int
    failed: int
    twice: int
    left: Mapping[str, int]  # Suite that `[bundles] capture` does not name → its checks.
    findings: tuple[Finding, ...]

    @property
    def vacuous(self) -> Mapping[str, int]:
        """Each wrong output → the cases that would pass with it."""
        of_controls = (finding for finding in self.findings if finding.kind == "vacuous-golden")
        return Counter(control for finding in of_controls for control in finding.numbers)

    def is_failure(self, *, strict: bool) -> bool:
        """Two captures of one identity always; a case that was not written if that is strict."""
        return bool(self.twice or (strict and self.failed))

    def lines(self, directory: Path, *, strict: bool) -> Iterator[str]:
        size = f"{self.size / 1e6:,.1f} MB" if self.size >= 100_000 else f"{self.size / 1e3:,.1f} kB"
        counts = {"failed": self.failed, "captured twice": self.twice, "dropped with their tests": self.dropped}
        rest = "".join(f", {number} {what}" for what, number in counts.items() if number)
        cases = f"{self.captured:,} case{'' if self.captured == 1 else 's'}"
        yield f"{cases} captured into {directory} ({size}){rest}"
        loud = [finding for finding in self.findings if finding.severity != Severity.INFO]
        loud.sort(key=lambda finding: (finding.severity.rank, finding.kind))
        for finding in loud[:_SHOWN]:
            yield f"{finding.severity.value} {finding.kind}: {finding.message}"
            if finding.next:
                yield f"     next: {finding.next}"
        if len(loud) > _SHOWN:
            yield f"… and {len(loud) - _SHOWN} more findings, all in {directory}/.karat"
        # One line per kind: nobody reads the same sentence for every test.
        quiet: dict[str, list[str]] = {}
        for finding in self.findings:
            if finding.severity == Severity.INFO and finding.kind != "vacuous-golden":
                quiet.setdefault(finding.kind, []).append(finding.message)
        for kind, messages in sorted(quiet.items()):
            more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
            yield f"info {kind}: {messages[0]}{more}"
        if self.vacuous:
            wrong = ", ".join(f"{count:,} with {CONTROLS[name]}" for name, count in self.vacuous.items())
            vacuous = sum(finding.kind == "vacuous-golden" for finding in self.findings)
            yield f"{vacuous:,} of {cases} would pass with a wrong output as well: {wrong}"
            yield f"     next: {Command('karat', 'audit', str(directory))}"
        if self.left:
            suites = ", ".join(f"{suite} ({count:,})" for suite, count in sorted(self.left.items()))
            yield f"Not captured, because [bundles] capture does not name the suite: {suites}"
        if self.failed and not self.is_failure(strict=strict):
            yield "This does not fail the session; --karat-strict would (the default in CI)."
        if self.captured:
            yield f"Next: {Command('karat', 'pack', str(directory))}"
        elif not self.findings and not self.left:
            yield "No test that passed used the fixture golden."


def summarize(entries: Sequence[JournalEntry]) -> CaptureSummary:
    """The journal's lines, added up; a case that was staged and never settled died with its worker."""
    settled = {(e.worker, e.case) for e in entries if e.case and e.event != "note"}
    staged = {(e.worker, e.number) for e in entries if e.event == "staged"}
    dropped = {(e.worker, e.case) for e in entries if e.event == "dropped"}
    # What a test that did not pass would have left does not count.
    valid = [e for e in entries if not {(e.worker, e.number), (e.worker, e.case)} & dropped]
    captured = [entry for entry in valid if entry.event == "captured"]
    return CaptureSummary(
        captured=len(captured),
        size=sum(entry.size for entry in captured),
        dropped=len(dropped) + len(staged - settled),
        failed=sum(entry.event == "failed" for entry in valid),
        twice=sum(entry.event == "twice" for entry in valid),
        left=Counter(entry.path for entry in entries if entry.event == "left"),
        findings=tuple(entry.finding for entry in valid if entry.finding is not None),
    )
