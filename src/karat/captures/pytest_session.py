"""Pytest's root folder, which every test is named from, and which the capture directory must not decide."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from karat.captures import functions
from karat.captures.check import Evidence
from karat.captures.records import Entry, merged, read_journals, still_there, sweep
from karat.captures.session import Failed, Session, Staged, session_name
from karat.captures.settings import OPTION, BundleSettings, Chosen, chosen, prepare
from karat.findings import Finding, KaratError, Severity, UsageError
from karat.goldens.paths import glob_regex
from karat.system.ci import in_ci


def require_own_root(config: pytest.Config) -> None:
    """Complains if pytest took the capture directory for a place of tests.

    It looks for its root folder before any plugin tells it which options take a value. Without a
    configuration file, DIR of `--karat-capture DIR` then counts as a place of tests as soon as it is there: every
    test has another name than in the first session.
    """
    if OPTION not in config.invocation_params.args:
        return
    own = _root_without(config)
    if own is not None and own != config.rootpath:
        place = shlex.quote(str(config.getoption("karat_capture")))
        raise UsageError(
            f"{OPTION}: expected {own} as pytest's root folder, found {config.rootpath}: pytest took the "
            "capture directory for a place of tests, and would give every test another name",
            next_command=f"pytest {OPTION}={place}",
        )


def _root_without(config: pytest.Config) -> Path | None:
    """The root folder as the real places of tests decide; None if this pytest cannot be asked."""
    try:
        from _pytest.config.findpaths import determine_setup  # noqa: PLC0415 - no public one

        return determine_setup(
            inifile=config.option.inifilename,
            override_ini=None,
            args=config.option.file_or_dir,
            rootdir_cmd_arg=config.option.rootdir,
            invocation_dir=config.invocation_params.dir,
        )[0]
    except (ImportError, TypeError, AttributeError):
        return None


# DOC-HERE summary: The summary of a session: how many cases were captured, what was not and why, and the next command.

_SHOWN = 20


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A session in numbers and findings."""

    captured: int
    size: int
    dropped: int
    failed: int
    twice: int
    left: Mapping[str, int]
    """Suite that `[bundles] capture` does not name → its checks."""
    findings: tuple[Finding, ...]

    def is_failure(self, *, strict: bool) -> bool:
        """Two captures of one identity always; a case that was not written where that is strict."""
        return bool(self.twice or (strict and self.failed))

    def lines(self, directory: Path, *, strict: bool) -> Iterator[str]:
        """The summary, gravest finding first."""
        yield f"{_cases(self.captured)} captured into {directory} ({_megabytes(self.size)}){self._rest()}"
        loud = sorted(
            (f for f in self.findings if f.severity != Severity.INFO),
            key=lambda finding: (finding.severity.rank, finding.kind),
        )
        for finding in loud[:_SHOWN]:
            yield f"{finding.severity.value} {finding.kind}: {finding.message}"
            if finding.next:
                yield f"     next: {finding.next}"
        if len(loud) > _SHOWN:
            yield f"… and {len(loud) - _SHOWN} more findings, all in {directory}/.karat"
        yield from _quiet(f for f in self.findings if f.severity == Severity.INFO)
        if self.left:
            suites = ", ".join(f"{suite} ({count:,})" for suite, count in sorted(self.left.items()))
            yield f"Not captured, because [bundles] capture does not name the suite: {suites}"
        if self.failed and not self.is_failure(strict=strict):
            yield "The session is not failed for it; --karat-strict would (default where CI is set)."
        if self.captured:
            yield f"Next: karat pack {shlex.quote(str(directory))}"
        elif not self.findings and not self.left:
            yield "No test that passed used the fixture golden."

    def _rest(self) -> str:
        words = [
            f"{self.failed} failed" if self.failed else "",
            f"{self.twice} captured twice" if self.twice else "",
            f"{self.dropped} dropped with their tests" if self.dropped else "",
        ]
        return "".join(f", {word}" for word in words if word)


def tell(entries: Sequence[Entry]) -> Told:
    """The journal's lines, added up; a case that was staged and never settled died with its worker."""
    settled = {(e.worker, e.case) for e in entries if e.case and e.event != "note"}
    staged = {(e.worker, e.number) for e in entries if e.event == "staged"}
    dropped = {(e.worker, e.case) for e in entries if e.event == "dropped"}
    # Nobody misses what a test would have left that did not pass.
    valid = [e for e in entries if not {(e.worker, e.number), (e.worker, e.case)} & dropped]
    captured = [entry for entry in valid if entry.event == "captured"]
    notes = (entry.finding() for entry in valid)
    return Told(
        captured=len(captured),
        size=sum(entry.size for entry in captured),
        dropped=len(dropped) + len(staged - settled),
        failed=sum(entry.event == "failed" for entry in valid),
        twice=sum(entry.event == "twice" for entry in valid),
        left=Counter(entry.path for entry in entries if entry.event == "left"),
        findings=tuple(finding for finding in notes if finding is not None),
    )


def _quiet(findings: Iterable[Finding]) -> Iterator[str]:
    """One line per kind: nobody reads the same sentence for every test."""
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    for kind, found in sorted(kinds.items()):
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        yield f"info {kind}: {found[0].message}{more}"


def _cases(count: int) -> str:
    return f"{count:,} case{'' if count == 1 else 's'}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size / 1e3:,.1f} kB"


# DOC-HERE capturing: Capturing in a pytest session: cases are staged while a test runs and published once all of it passed.
#
# Registered by `karat.captures.plugin` only if a capture directory was named. Under pytest-xdist the
# controller makes the directory, names the session and sums up; workers stage and publish.


class Trial:
    """One attempt at one test, and what it has captured so far, or could not."""

    def __init__(self, item: pytest.Item) -> None:
        self.item = item
        self.taken: list[Staged | Failed] = []
        self.spoiled = False
        self.pid = os.getpid()
        self._begun: list[int] = []
        """How much was taken when each subtest began that is under way."""

    def in_subtest(self, entered: bool) -> None:  # noqa: FBT001 - in or out
        """A subtest begins, or has ended."""
        if entered:
            self._begun.append(len(self.taken))
        else:
            self._begun.pop()

    def judge(self, report: pytest.TestReport) -> list[Staged | Failed]:
        """What did not pass spoils the attempt; a subtest that was skipped, only what it took itself."""
        if not report.skipped or not self._begun:
            self.spoiled |= not report.passed
            return []
        kept = self._begun[-1]
        own, self.taken = self.taken[kept:], self.taken[:kept]
        return own


class Handed(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller tells its workers."""

    directory: str
    session: str
    run: str


class Capturing:
    """The second plugin."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._handed: Any = getattr(config, "workerinput", {}).get("karat")
        self._lines: list[str] = []
        self._from_workers: list[Entry] = []
        self._told: Told | None = None
        self.settings = BundleSettings()
        self.session: Session | None = None
        """None until the session starts, and where tests are only listed."""
        self.trial: Trial | None = None
        """Of the test that runs now."""

    # Beginning

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Before any test, and before xdist starts its workers: a directory that cannot be used fails here."""
        if _only_looks(self._config):
            return
        try:
            self._begin()
        except UsageError as error:
            raise pytest.UsageError(f"{error}\nnext: {error.next_command}") from error
        functions.push(self)

    def _begin(self) -> None:
        from karat.config import load  # noqa: PLC0415 - it brings the settings of every room

        self.settings = load(self._config.rootpath).bundles
        handed = self._hear() if self._handed else self._decide()
        self.session = Session(
            Path(handed.directory),
            handed.session,
            run=handed.run,
            worker=getattr(self._config, "workerinput", {}).get("workerid", "main"),
            root=self._config.rootpath,
        )

    def _hear(self) -> Handed:
        return msgspec.json.decode(self._handed, type=Handed)

    def _decide(self) -> Handed:
        option = self._config.getoption("karat_capture")
        require_own_root(self._config)
        place = chosen(option, os.environ, self._config.invocation_params.dir)
        assert place is not None, "the plugin is registered only if a directory was named"  # noqa: S101
        name = session_name(self._config.getoption("karat_session"), os.environ)
        room = prepare(place)
        sweep(place.path)
        self._lines = _header(place, name, room)
        return Handed(directory=str(place.path), session=name, run=os.urandom(6).hex())

    def pytest_report_header(self) -> list[str]:
        """Where goldens go, and who said so."""
        return self._lines

    # Workers

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hands directory and session to a worker of xdist."""
        if self.session is not None:
            handed = Handed(
                directory=str(self.session.directory),
                session=self.session.name,
                run=self.session.run,
            )
            node.workerinput["karat"] = msgspec.json.encode(handed).decode()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Takes what a worker says it did; one that died has left its journal."""
        said = getattr(node, "workeroutput", {}).get("karat")
        if said:
            self._from_workers += msgspec.json.decode(said, type=list[Entry])

    # Tests

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """An attempt begins; a rerun of a failed test is another one."""
        self.trial = Trial(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """What did not pass, a subtest too, spoils the attempt; after teardown it is settled."""
        report = yield
        if self.trial is not None:
            for taken in self.trial.judge(report):
                self._drop(taken)
            if call.when == "teardown":
                self._settle(self.trial)
                self.trial = None
        return report

    def _drop(self, taken: Staged | Failed) -> None:
        if self.session is not None:
            self.session.drop(taken)

    def _settle(self, trial: Trial) -> None:
        if self.session is None:
            return
        for taken in trial.taken:
            if trial.spoiled:
                self.session.drop(taken)
            elif isinstance(taken, Staged):
                self.session.publish(taken)

    # What `golden` and the plain functions ask

    def item(self) -> pytest.Item:
        """The test that runs now."""
        assert self.trial is not None, "only a running test asks"  # noqa: S101
        return self.trial.item

    def wants(self, suite: str, wish: bool | None) -> bool:  # noqa: FBT001 - three answers
        """Whether a test is to be captured: as its marker says, or as `[bundles] capture` does."""
        if self.session is None or wish is not None:
            return bool(self.session and wish)
        if any(glob_regex(glob).fullmatch(suite) for glob in self.settings.capture):
            return True
        self.session.journal.note(
            "left", path=suite
        )  # a misspelt suite is not to vanish in silence
        return False

    def with_form(self, evidence: Evidence, wishes: Mapping[str, Any]) -> Evidence:
        """The same with or without raw files and strides, as marker, options or configuration say."""
        option, settings = self._config.getoption, self.settings
        return msgspec.structs.replace(
            evidence,
            raw=wishes.get("raw", evidence.raw or option("karat_raw") or settings.raw),
            strides=wishes.get(
                "strides", evidence.strides or option("karat_strides") or settings.strides
            ),
        )

    def take(self, evidence: Evidence) -> Staged | Failed | None:
        """Stages a case for the test that runs now."""
        if self.session is None or self.trial is None:
            return None
        if self.trial.pid != os.getpid():
            return self.session.refuse(evidence.identity, _FORKED)
        found = self.session.stage(evidence)
        self.trial.taken.append(found)
        return found

    # End

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Sums up, on the controller; a capture that went wrong is seen in the exit code."""
        functions.remove(self)
        if self.session is None:
            return
        if self.trial is not None:  # interrupted in the middle of a test
            self.trial.spoiled = True
            self._settle(self.trial)
        self.session.close()
        entries = self.session.journal.entries
        if self._handed:
            said = msgspec.json.encode(entries).decode()
            self._config.workeroutput["karat"] = said  # type: ignore[attr-defined]
            return
        sweep(self.session.directory)
        left = read_journals(self.session.books, self.session.run)
        lines = still_there(merged(left, self._from_workers, entries), self.session.directory)
        self._told = tell(list(lines))
        ended_well = session.exitstatus == pytest.ExitCode.OK
        if ended_well and self._told.is_failure(strict=self._is_strict()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _is_strict(self) -> bool:
        asked: bool | None = self._config.getoption("karat_strict")
        return in_ci() if asked is None else asked

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """What was captured, what was not, and the next command."""
        if self._told is None or self.session is None:
            return
        terminalreporter.section("karat: captured goldens")
        for line in self._told.lines(self.session.directory, strict=self._is_strict()):
            terminalreporter.write_line(line)


_FORKED = KaratError(
    "it was checked in a process that the test forked, which never learns how the test ends",
    next_command="golden.check(…) in the test's own process",
)


def _only_looks(config: pytest.Config) -> bool:
    words = ("collectonly", "showfixtures", "show_fixtures_per_test", "setuponly", "setupplan")
    return any(config.getoption(word, False) for word in words)


def _header(place: Chosen, session: str, room: str | None) -> list[str]:
    line = f"karat: capturing into {place.path} ({place.origin}), session {session}"
    return [line, *(f"karat: {note}" for note in (place.note, room) if note)]
