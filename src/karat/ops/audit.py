"""An audit: every operator of a catalogue in worker processes, a journal of what was found, and one report.

The journal has a line per operator, written as soon as it is done, so an audit that was stopped goes on where it was. What
fails is held against a list of known faults and against an earlier audit.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec
from msgspec.structs import replace

from karat.findings import CannotVerify, ExitCode, Finding, KaratError, UsageError, fail, info, warn
from karat.ops.catalogue import BUILT_IN
from karat.ops.script import Fault
from karat.ops.worker import COLUMNS, MISSING, OUTCOMES, Checked, Listed, Suspect, WorkerSetup
from karat.replays.processes import Garbled, WorkerProcess, printed_last, receive, send
from karat.report.words import few
from karat.system.command import Command
from karat.system.foreign import toml
from karat.system.foreign.limits import LOG, TEXT, read_plain
from karat.system.pool import in_parallel

SCHEMA = "karat.ops/1"
T = TypeVar("T")
_IMPORT_TIMEOUT = 600.0
# Processes are many: each has one core, and no more of a GPU than it needs.
_ONE_OF_MANY = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
NOT_AUDITED = "not audited"
_SCRIPT_TIMEOUT = 120.0
_TRIES = 8  # Scripts that are tried before a fault is called unverified.


class AuditedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of one operator."""

    name: str
    cells: dict[str, str]
    """Column → FAIL, unverified, INACCURATE, INCONCLUSIVE, PASS or not supported; what was not asked is not there."""
    reasons: dict[str, str] = {}  # column → why it is neither PASS nor missing
    faults: tuple[Fault, ...] = ()
    checked: int = 0
    inconclusive: int = 0  # samples of which a column is INCONCLUSIVE
    samples: int = 0  # how many there are
    refused: tuple[str, ...] = ()  # samples that could not be checked, and why
    ended: str = ""  # how its process ended, if it did not come to an end of its own
    seconds: float = 0.0
    peer_seconds: float = 0.0

    @property
    def outcome(self) -> str:
        """The gravest of its columns."""
        return min(self.cells.values(), key=OUTCOMES.index, default=NOT_AUDITED)


class OpsReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit came to."""

    catalogue: str
    versions: dict[str, str]
    level: str
    seed: int
    samples: int  # samples of each operator that were checked at most; 0 is all
    counts: dict[str, int] = {}  # outcome → operators
    checks: int
    inconclusive_checks: int
    operators: tuple[AuditedOperator, ...]
    skipped: dict[str, str]  # operators that were not audited, and why
    seconds: float  # of all processes together, for the checks alone
    peer_ratio: float | None = None  # how much longer the checks took than the framework's own quick check
    findings: tuple[Finding, ...] = ()


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a journal: what the others are of."""

    setup: WorkerSetup
    versions: dict[str, str]


class KnownFault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of the list of known faults."""

    op: str  # a name or a glob
    column: str = "*"
    reason: str
    expires: date

    def covers(self, op: str, column: str) -> bool:
        return (self.op == op or fnmatchcase(op, self.op)) and fnmatchcase(column, self.column)


_UNDEFINED = "indices that repeat: which of the values is written is undefined, as torch's documentation says"
_RANDOM = "torch defines the gradient of what it draws at random as zero"
_TORCH = {"nn.functional.max_unpool?d": _UNDEFINED, "normal": _RANDOM, "normal[[]*": _RANDOM}
_KNOWN = {"torch": tuple(KnownFault(op=op, reason=why, expires=date(2028, 12, 31)) for op, why in _TORCH.items())}
"""What differences cannot judge, by catalogue."""


def known_faults(path: Path) -> tuple[KnownFault, ...]:
    """The `[[known]]` tables of a file."""
    words = "[[known]] tables with op, reason and expires = 2027-01-31"
    return _converted(path, toml.loads, dict[str, tuple[KnownFault, ...]], words).get("known", ())


def earlier(path: Path) -> OpsReport:
    """An audit that was written as JSON."""

    def read(text: str) -> dict[str, Any]:
        found = msgspec.json.decode(text, type=dict[str, Any])
        if found.get("schema") != SCHEMA:
            raise ValueError(f"schema {found.get('schema')}")
        return {**found, "findings": []}

    return _converted(path, read, OpsReport, f"an audit, schema {SCHEMA}")


def _converted(path: Path, read: Callable[[str], Any], kind: type[T], expected: str) -> T:
    try:
        return msgspec.convert(read(read_plain(path, TEXT).decode()), kind)
    except OSError as error:
        said = f"expected to read {path}, but: {error.strerror or error}"
        raise CannotVerify(said, next_command=Command("ls", "-l", str(path))) from error
    except ValueError as error:
        said = f"{path}: expected {expected}, found: {error}"
        raise UsageError(said, next_command=Command("head", str(path))) from error


def listing(setup: WorkerSetup) -> Listed:
    """The operators of a catalogue, as a process of its own has them."""
    worker, found = _start(setup)
    worker.close()
    return found


def _start(setup: WorkerSetup) -> tuple[WorkerProcess, Listed]:
    worker = WorkerProcess("karat.ops.worker", {**os.environ, **_ONE_OF_MANY}, "-P")
    try:
        found = worker.ask(setup, Listed, _IMPORT_TIMEOUT)
    except Garbled:
        found = None
    if found is None:
        how = worker.how_it_ended(_IMPORT_TIMEOUT)
        found = Listed(problem=f"expected to load {setup.catalogue}, but {how}{printed_last(worker.log)}", exit_code=3)
    if found.problem:
        worker.close()
        kind: type[KaratError] = UsageError if found.exit_code == ExitCode.USAGE else CannotVerify
        again = found.next_command or Command("python", "-c", f"import {setup.catalogue}")
        raise kind(found.problem, next_command=again)
    return worker, found


def audit(  # noqa: PLR0913 - all but one are optional
    setup: WorkerSetup,
    *,
    select: Sequence[str] = (),
    jobs: int = 1,
    timeout: float = 600.0,
    journal: Path | None = None,
    resume: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> OpsReport:
    """Audit the operators whose names match one of the globs, or all; findings are for `judged` to make."""
    workers = _Workers(setup, timeout)
    try:
        there = workers.start()
        globs = select or ("*",)
        matched = {name for name in there.operators for glob in globs if name == glob or fnmatchcase(name, glob)}
        chosen = {name: why for name, why in there.operators.items() if name in matched}
        if not chosen:
            said = f"expected operators that match {', '.join(select)}, found none among {len(there.operators):,}"
            raise UsageError(said, next_command=Command("karat", "ops", "list", setup.catalogue))
        header = _Header(setup=setup, versions=there.versions)
        done = dict(_read(journal, header)) if journal is not None and resume else {}
        wanted = [name for name, why in chosen.items() if not why]
        tasks = [partial(workers.audited, name) for name in wanted if name not in done]
        with _journal(journal, header, done.values()) as lines:
            for one in in_parallel(tasks, jobs, stop=workers.close):
                done[one.name] = one
                _write(lines, one)
                if progress is not None:
                    progress(sum(name in done for name in wanted), len(wanted))
    finally:
        workers.close()
    found = tuple(done[name] for name in chosen if name in done)
    peer = sum(one.peer_seconds for one in found)
    return OpsReport(
        catalogue=setup.catalogue,
        versions=there.versions,
        level=setup.level,
        seed=setup.seed,
        samples=setup.samples,
        checks=sum(one.checked for one in found),
        inconclusive_checks=sum(one.inconclusive for one in found),
        operators=found,
        skipped={name: why for name, why in chosen.items() if why},
        seconds=sum(one.seconds for one in found),
        peer_ratio=sum(one.seconds for one in found if one.peer_seconds) / peer if peer else None,
    )


class _Workers:
    """Processes that stand ready; one that is lost is replaced by the next who needs one."""

    def __init__(self, setup: WorkerSetup, timeout: float) -> None:
        self._setup, self._timeout = setup, timeout
        self._idle: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        self._all: list[WorkerProcess] = []

    def start(self) -> Listed:
        worker, found = _start(self._setup)
        self._all.append(worker)
        self._idle.put(worker)
        return found

    def audited(self, name: str) -> AuditedOperator:
        try:
            worker = self._idle.get_nowait()
        except queue.Empty:
            worker, _ = _start(self._setup)
            self._all.append(worker)
        found: list[Checked] = []
        ended = ""
        try:
            with worker.deadline(self._timeout):
                send(worker.orders, name)
                while (answer := receive(worker.answers, Checked)) is not None:
                    found.append(answer)
                    if answer.last is not None:
                        break
        except (BrokenPipeError, Garbled):
            answer = None
        if answer is None:
            ended = f"{worker.how_it_ended(self._timeout)}{printed_last(worker.log)}"
            worker.close()
        else:
            self._idle.put(worker)
        return _summary(name, found, ended, [] if self._setup.catalogue not in BUILT_IN else ["-P"])

    def close(self) -> None:
        for worker in self._all:
            with suppress(OSError, ValueError):
                worker.close()


def _summary(name: str, found: Sequence[Checked], ended: str, options: Sequence[str]) -> AuditedOperator:
    """One operator from its samples; a FAIL without a script, run with these options of Python, is unverified."""
    cells: dict[str, str] = {}
    reasons: dict[str, str] = {}
    faults = _verified([suspect for one in found for suspect in one.suspects], options)
    shown = {fault.column for fault in faults if fault.shown}
    for one in found:
        for column, cell in one.cells.items():
            outcome = "unverified" if cell.outcome == "FAIL" and column not in shown else cell.outcome
            if OUTCOMES.index(outcome) < OUTCOMES.index(cells.get(column, MISSING)) or column not in cells:
                cells[column] = outcome
                reasons[column] = "" if outcome == "PASS" else f"{one.sample}: {cell.reason}"
    checked = [one for one in found if one.cells]
    return AuditedOperator(
        name=name,
        cells={column: cells[column] for column in COLUMNS if column in cells},
        reasons={column: why for column, why in reasons.items() if why},
        faults=faults,
        checked=len(checked),
        inconclusive=sum(any(cell.outcome == "INCONCLUSIVE" for cell in one.cells.values()) for one in checked),
        samples=max((one.last for one in found if one.last is not None), default=len(found)),
        refused=tuple(f"{one.sample}: {one.problem}" for one in found if one.problem),
        ended=ended,
        seconds=sum(one.seconds for one in found),
        peer_seconds=sum(one.peer_seconds for one in found),
    )


def _verified(suspects: Sequence[Suspect], options: Sequence[str]) -> tuple[Fault, ...]:
    """A fault for each column: the first that a script shows; else the first, without what a script printed."""
    columns: dict[str, list[Suspect]] = {}
    for suspect in suspects:
        columns.setdefault(suspect[0].column, []).append(suspect)
    made = []
    for among in columns.values():
        tries = islice(((fault, script) for fault, scripts in among for script in scripts), _TRIES)
        ran = (replace(fault, script=script, shown=_shown(script, fault, options)) for fault, script in tries)
        made.append(next((one for one in ran if one.shown), among[0][0]))
    return tuple(made)


def _shown(script: str, fault: Fault, options: Sequence[str]) -> str:
    """What the script printed, if it shows the fault: another number than differences give, or the very error."""
    try:
        ran = subprocess.run(
            [sys.executable, *options, "-c", script],
            capture_output=True,
            text=True,
            timeout=_SCRIPT_TIMEOUT,
            env={**os.environ, **_ONE_OF_MANY},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""
    if ran.stdout.startswith("wrong:"):
        return ran.stdout.strip()
    raised = [line for line in ran.stderr.splitlines() if line[:1].isalpha() and "Error: " in line]
    return raised[-1] if raised and raised[-1][:80] in fault.reason else ""


def _read(path: Path, header: _Header) -> Iterator[tuple[str, AuditedOperator]]:
    """What a journal of the same audit has; nothing of another's. A line that was cut off is made again."""
    try:
        first, *lines = read_plain(path, LOG).splitlines() or [b""]
    except FileNotFoundError:
        return
    except OSError as error:
        said = f"expected to read the journal {path}, but: {error.strerror or error}"
        raise CannotVerify(said, next_command=Command("ls", "-l", str(path))) from error
    with suppress(msgspec.MsgspecError):
        if msgspec.json.decode(first, type=_Header) == header:
            for line in lines:
                one = msgspec.json.decode(line, type=AuditedOperator)
                yield one.name, one


def _journal(path: Path | None, header: _Header, done: Iterable[AuditedOperator]) -> IO[bytes]:
    """A journal with what is known; written anew, since the last line of one that was stopped may be half of one."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    file = Path(path or os.devnull).open("wb")  # noqa: SIM115 - the caller closes it
    for one in (header, *done):
        _write(file, one)
    return file


def _write(file: IO[bytes], one: msgspec.Struct) -> None:
    file.write(msgspec.json.encode(one) + b"\n")
    file.flush()


def judged(
    report: OpsReport, *, known: Sequence[KnownFault] = (), against: OpsReport | None = None, today: date
) -> OpsReport:
    """The report with its findings, gravest first: new faults fail, known ones and those of an earlier audit do not."""
    before = {(one.name, f.column) for one in (against.operators if against else ()) for f in one.faults if f.shown}
    made: list[Finding] = []
    operators: list[AuditedOperator] = []
    used: set[KnownFault] = set()
    entries = (*known, *_KNOWN.get(report.catalogue, ()))
    for one in report.operators:
        cells = dict(one.cells)
        for finding in _of_operator(one, report.catalogue):
            made.append(finding)
            column = finding.metric or ""
            if finding.kind != "grad-failed":
                continue
            entry = next((entry for entry in entries if entry.covers(one.name, column)), None)
            used |= {entry} if entry else set()
            if entry is not None and entry.expires < today:
                said = f"{column}: its entry expired on {entry.expires}: {entry.reason}"
                made.append(fail("exemption-expired", said, path=one.name, metric=column))
            elif entry is not None or (one.name, column) in before:
                why = f"known until {entry.expires}: {entry.reason}" if entry else "the earlier audit had it, too"
                made[-1] = info("exempted", f"{finding.message}; {why}", path=one.name, metric=column)
                cells[column] = "known"
        mine = sorted(column for name, column in before if name == one.name)
        gone = [column for column in mine if cells.get(column) not in {"FAIL", "known"}]
        said = "was wrong in the earlier audit, and is not any more"
        made += [info("status-improved", f"{column}: {said}", path=one.name, metric=column) for column in gone]
        operators.append(replace(one, cells=cells))
    made += [
        warn("exemption-unused", f"{one.op}, {one.column}: no such fault was found; remove the entry", path=one.op)
        for one in known
        if one not in used and any(one.covers(other.name, one.column) for other in operators)
    ]
    if not report.checks:
        said = f"nothing was checked of {few([one.name for one in operators] or list(report.skipped), 3)}"
        made.append(fail("nothing-compared", said, next=Command("karat", "ops", "list", report.catalogue)))
    counts = {word: sum(one.outcome == word for one in operators) for word in (*OUTCOMES, NOT_AUDITED)}
    made.sort(key=lambda one: one.severity.rank)
    return replace(report, operators=tuple(operators), counts=counts, findings=tuple(made))


def _of_operator(one: AuditedOperator, catalogue: str) -> Iterator[Finding]:
    again = Command("karat", "ops", "audit", catalogue, "--select", one.name)
    for fault in one.faults:
        place: dict[str, Any] = {"path": one.name, "metric": fault.column, "where": fault.sample, "next": again}
        if fault.shown:
            yield fail("grad-failed", f"{fault.column}: {fault.reason}; its script: {fault.shown}", **place)
        else:
            yield warn("fault-unverified", f"{fault.column}: {fault.reason}; no script shows it", **place)
    if one.ended:
        yield fail("op-ended", f"after {one.checked:,} samples: {one.ended}", path=one.name, next=again)
    if not one.checked and not one.ended:
        why = one.refused[0] if one.refused else "it has no samples with something to differentiate"
        yield warn("not-audited", why, path=one.name, next=again)
    for column, outcome in one.cells.items():
        if outcome in {"INCONCLUSIVE", "INACCURATE"}:
            said = f"{column}: {outcome.lower()}: {one.reasons[column]}"
            yield info("evidence-inconclusive", said, path=one.name, metric=column)
