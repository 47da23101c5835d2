"""Journals of evidence: what a test run leaves about gradients, one JSON line each, schema karat.evidence/1.

`FOLDER/evidence-SESSION-WORKER-PID.jsonl`: each worker has its own, written and flushed line by line. A worker that
dies leaves all it had done until then; journals of other workers, shards and jobs may lie in the same folder.

The last line seals the others with their digest. A seal shows that a journal was changed by accident or by hand; it
is no signature: whoever may write the file can make another.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict

from karat.findings import CannotVerify, Finding, fail
from karat.gradients.report import GradComparison, GradVerdict
from karat.gradients.session import Declared, Event, NoGrad
from karat.policy.tested import names_and_files
from karat.report.json import sayable
from karat.report.words import cut, few
from karat.system import ci, git
from karat.system.foreign.limits import CLOSED

SCHEMA = "karat.evidence/1"
_LINE = 1 << 20  # No line that karat writes is longer.
_REASON = 600  # Characters of a reason that a journal keeps.


class Evidence(msgspec.Struct, frozen=True, kw_only=True, tag="evidence", omit_defaults=True):
    """One completed comparison of one test."""

    op: str
    input: str
    output: str
    dtype: str
    device: str
    mode: str
    order: int
    test: str
    verdict: GradVerdict
    oracle: str
    strength: Literal["strong", "weak"]
    vacuous: bool
    error: float | None = None
    tolerance: float | None = None
    smallest_error: float | None = None  # None: not a finite number.
    widened: float | None = None
    reason: str = ""
    seed: int = 0
    elements: int | None = None  # How many the input had.
    untried: tuple[str, ...] = ()  # Laws that the check was told to leave out.

    @property
    def counts(self) -> bool:
        """Whether it is evidence: all of it passed, could have failed, and did not rest on its author alone."""
        strong = self.strength == "strong" and not self.untried
        return self.verdict.holds and not self.vacuous and strong


class Reported(msgspec.Struct, frozen=True, kw_only=True, tag="report", omit_defaults=True):
    """A whole gradient check: its verdict also speaks of laws, which no single comparison does."""

    op: str
    test: str
    device: str
    framework: str
    version: str = ""  # Of the framework.
    verdict: GradVerdict
    reason: str = ""
    seed: int = 0
    comparisons: int = 0
    unasked: tuple[str, ...] = ()  # Outputs with a gradient that the check did not ask for.
    functions: tuple[str, ...] = ()  # What was checked: the function, and those that it refers to by name.
    sources: dict[str, str] = msgspec.field(default_factory=dict)
    """Files of the repository that these and the test stand in, seen from its top → SHA-256."""
    nondeterminism_bound: float = 0.0  # How much two runs of one backward were allowed to differ.


class OpTested(msgspec.Struct, frozen=True, kw_only=True, tag="op-test", omit_defaults=True):
    """An op test that was set up in this run."""

    op: str
    test: str
    file: str
    line: int = 0
    inputs: dict[str, str] = msgspec.field(default_factory=dict)
    no_grad: tuple[str, ...] = ()
    skip_reason: str | None = None


class NoGradAsked(msgspec.Struct, frozen=True, kw_only=True, tag="no-grad", omit_defaults=True):
    """An op that did not prove a gradient of an input was asked for it."""

    op: str
    input: str
    test: str
    outcome: Literal["raises", "zero", "gradient"]
    detail: str = ""


class Collected(msgspec.Struct, frozen=True, kw_only=True, tag="collected", omit_defaults=True):
    """A test class or function that pytest found, and whether this run was to run all of it."""

    test: str
    op: str | None = None
    selected: int
    deselected: int = 0
    op_test: bool = True  # Known to be an op test by its class; else only what it declares makes it one.


class ItemOutcome(msgspec.Struct, frozen=True, kw_only=True, tag="outcome", omit_defaults=True):
    """How one test item of an op test ended."""

    test: str
    item: str
    outcome: Literal["passed", "failed", "skipped"]
    reason: str = ""


class Began(msgspec.Struct, frozen=True, kw_only=True, tag="began", omit_defaults=True):
    """A worker's journal starts here."""

    schema: str = SCHEMA
    session: str
    worker: str
    karat: str
    python: str
    started: str
    commit: str | None = None
    run: str | None = None  # The CI run, or what KARAT_SESSION says: sessions of one run belong together.
    root: str = ""
    """Where pytest's root lies in its repository: two suites of one repository may have tests of the same name."""


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended", omit_defaults=True):
    """A worker came to its end; a journal without this line was cut off."""

    exit_status: int
    ran: int = 0  # Tests of any kind that were run.
    uncollected: tuple[str, ...] = ()
    """Files that could not be collected, so that nobody knows which tests they hold; `.` is the whole session."""
    whole: bool = False  # Nothing narrowed what was collected: no paths, no -k, no -m, no --lf, and nothing stopped it.
    seal: str = ""  # The SHA-256 of all lines before this one.


Record = Began | Evidence | Reported | OpTested | NoGradAsked | Collected | ItemOutcome | Ended


class EvidenceJournal(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    group: str  # The folder it lies in.
    began: Began | None = None
    ended: Ended | None = None
    lines: tuple[tuple[bytes, Record], ...] = ()  # With the very bytes of each, by which the same line is known again.
    findings: tuple[Finding, ...] = ()

    @property
    def session(self) -> str:
        return self.began.session if self.began else ""

    @property
    def run(self) -> str | None:
        """The CI run and its commit; sessions of one belong together."""
        began = self.began
        return f"{began.run} {began.commit}" if began and began.run else None

    @property
    def origin(self) -> str:
        """Whose it is: the run's, else the session's."""
        return self.run or self.session


def read_journal(path: Path) -> EvidenceJournal:
    """Every whole line of a journal; what cannot be read is reported, and counts for nothing."""
    journal = EvidenceJournal(path=str(path), group=str(path.parent))
    try:
        with path.open("rb") as file:
            raw = list(iter(lambda: file.readline(_LINE + 1), b""))
    except OSError as error:
        return _damaged(journal, f"cannot be read: {error.strerror or error}")
    decode = msgspec.json.Decoder(Record).decode
    lines: list[tuple[bytes, Record]] = []
    wrong = ""
    for number, line in enumerate(raw, 1):
        try:
            lines.append((line.rstrip(b"\n"), decode(line)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            wrong = wrong or f"line {number} is not a record ({error})"
    first = lines[0][1] if lines else None
    if not isinstance(first, Began):
        found = "something else" if lines else "no record"
        return _damaged(journal, f"expected a journal with a first line, found {found}")
    if first.schema != SCHEMA:
        return _damaged(journal, f"expected schema {SCHEMA}, found {first.schema!r}")
    last = lines[-1][1]
    ended = last if isinstance(last, Ended) else None
    journal = msgspec.structs.replace(journal, began=first, ended=ended, lines=tuple(lines[1:]))
    if ended is not None and ended.seal != hashlib.sha256(b"".join(raw[:-1])).hexdigest():
        wrong = "its lines are not those that it was sealed with: it was changed after it was written"
        return _damaged(msgspec.structs.replace(journal, lines=()), wrong, "nothing in it counts")
    if wrong:
        pass
    elif ended is None:
        wrong = "it has no last line, the seal: its worker was killed or is still running, or it was cut off"
    elif "." in ended.uncollected:
        wrong = "it ended while tests were being collected"
    elif ended.uncollected:
        wrong = f"{few(ended.uncollected, 3)} could not be collected"
    return _damaged(journal, wrong) if wrong else journal


def _damaged(
    journal: EvidenceJournal, what: str, so: str = "what it holds is used, what it lacks is unknown"
) -> EvidenceJournal:
    again = "pytest --karat-evidence=DIR  # again, into an empty folder"
    finding = fail("evidence-damaged", f"{journal.path}: {what}; {so}", path=journal.path, next=again)
    return msgspec.structs.replace(journal, findings=(finding,))


class Recorder:
    """Keeps the journal of one worker; `tell` may be given to `karat.gradients.session.listen`."""

    def __init__(
        self,
        folder: str | Path,
        *,
        session: str | None = None,
        worker: str = "main",
        suite: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.session = session or os.urandom(6).hex()
        self.worker = worker
        self._suite = suite
        self.current: str | None = None  # The test that runs now; where there is none, events say theirs.
        self._environment = os.environ if environment is None else environment
        self._pid = os.getpid()
        self._handle: int | None = None
        self._seal = hashlib.sha256()

    def tell(self, event: Event) -> None:
        """Write down what an event says, under the test that runs now."""
        for record in records_of(event, self.current or event.test, self._suite):
            self.note(record)

    def note(self, record: Record) -> None:
        if os.getpid() == self._pid:  # one that a test forked would write lines of its own between these
            self.begin()
            self._append(record)

    def end(self, exit_status: int = 0, *, ran: int = 0, uncollected: Iterable[str] = (), whole: bool = False) -> None:
        """The last line; without it the journal counts as cut off."""
        self.begin()  # a session without a word about gradients has a journal, too
        said: dict[str, Any] = {"ran": ran, "uncollected": tuple(uncollected), "whole": whole}
        self._append(Ended(exit_status=exit_status, seal=self._seal.hexdigest(), **said))
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def begin(self) -> None:
        """The first line, unless it stands there; from then on a journal without a last line was cut off."""
        if self._handle is not None:
            return
        import platform
        from datetime import UTC, datetime

        from karat import __version__

        words = [re.sub(r"[^A-Za-z0-9._]+", "_", word)[:60] for word in (self.session, self.worker)]
        path = self.folder / f"evidence-{'-'.join(words)}-{self._pid}.jsonl"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | CLOSED
            self._handle = os.open(path, flags, 0o644)
        except OSError as error:
            text = f"cannot write evidence to {path}: {error.strerror or error}"
            raise CannotVerify(text, next_command="pytest --karat-evidence=DIR  # a folder you may write to") from error
        environ = self._environment
        self._append(
            Began(
                session=self.session,
                worker=self.worker,
                karat=__version__,
                python=platform.python_version(),
                started=datetime.now(UTC).isoformat(),
                commit=tested_commit(self._suite, environ),
                run=run_of(environ),
                root=place_of(self._suite) if self._suite else "",
            )
        )

    def _append(self, record: Record) -> None:
        assert self._handle is not None, "a journal is opened before it is written"  # noqa: S101
        data = encode(record) + b"\n"
        self._seal.update(data)
        line = memoryview(data)
        while line:
            line = line[os.write(self._handle, line) :]


def run_of(environment: Mapping[str, str]) -> str | None:
    """The CI run, or what KARAT_SESSION says."""
    return environment.get("KARAT_SESSION") or ci.facts(environment).get("run")


def tested_commit(folder: Path | None, environment: Mapping[str, str]) -> str | None:
    """The commit that is checked out around a folder, or what CI says; it may have checked out another."""
    with suppress(CannotVerify):
        if folder is not None:
            return git.root_and_head(folder)[1]
    return ci.commit_of(environment)


def top_of(folder: Path) -> Path:
    """The top of the repository around a folder; the folder itself without one."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)


def place_of(root: Path) -> str:
    """Where a suite's root lies in its repository; empty at its top, or without one."""
    place = root.relative_to(top_of(root)).as_posix()
    return "" if place == "." else place


def encode(record: Record) -> bytes:
    """One line of JSON; what UTF-8 cannot hold (half a surrogate pair in a name) is escaped."""
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        return msgspec.json.encode(sayable(msgspec.to_builtins(record)))


_SHARED = [name for name in Evidence.__struct_fields__ if name in GradComparison.__struct_fields__]


def records_of(event: Event, test: str, suite: Path | None = None) -> list[Record]:
    """What an event says, as lines of a journal; `suite` is the folder that tests are named from."""
    if isinstance(event, Declared):
        more = {"test": test, "inputs": dict(event.inputs), "no_grad": tuple(sorted(event.no_grad))}
        return [OpTested(**{**asdict(event), **more})]
    if isinstance(event, NoGrad):
        return [NoGradAsked(**{**asdict(event), "test": test, "detail": cut(event.detail, _REASON)})]
    report = event.report
    file = suite and suite / test.partition("::")[0]
    names, sources = names_and_files(event.functions, suite and top_of(suite), file)
    records: list[Record] = [
        Reported(
            op=report.op,
            test=test,
            device=report.device,
            framework=report.framework,
            version=str(getattr(sys.modules.get(report.framework), "__version__", "")),
            verdict=report.verdict,
            reason=cut(report.reason, _REASON),
            seed=report.seed,
            comparisons=len(report.comparisons),
            unasked=event.unasked,
            functions=names,
            sources=sources,
            nondeterminism_bound=_limit(event.nondeterminism_bound) or 0.0,
        )
    ]
    for one in report.comparisons:
        shared: dict[str, Any] = {name: getattr(one, name) for name in _SHARED}
        for name in ("error", "tolerance", "smallest_error"):  # JSON has no word for NaN and infinities
            shared[name] = float(shared[name]) if isfinite(shared[name]) else None
        shared |= {"widened": _limit(one.widened), "reason": cut(one.reason, _REASON)}
        shared |= {"elements": event.elements.get(one.input), "untried": event.untried}
        records.append(Evidence(op=report.op, device=report.device, test=test, seed=report.seed, **shared))
    return records


def _limit(value: float | None) -> float | None:
    """A limit that lets everything pass (infinite, NaN) is the largest number there is, not none."""
    return value if value is None or isfinite(value) else sys.float_info.max


def unit_of(node: str) -> str:
    """The test that an item belongs to: `file.py::Class`, or `file.py::function`; parameters make no other test."""
    path, _, rest = node.partition("::")
    names = rest.partition("[")[0].split("::")
    return "::".join([path, *(names[:-1] if len(names) > 1 else names)]) if rest else path
