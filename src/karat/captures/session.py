"""Publishing: a staged case goes into place in one step, or not at all."""

from __future__ import annotations

import errno
import itertools
import os
import re
import shlex
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from karat.bundles.manifest import NAME, Identity, case_path
from karat.bundles.write import Captured, write_case
from karat.captures import records
from karat.captures.check import Evidence, program_of
from karat.captures.environment import created, environment, seeds
from karat.captures.records import Event, Journal, staging_name
from karat.captures.settings import BOOKS, standing
from karat.findings import Finding, KaratError, Severity, UsageError
from karat.system.ci import session_of
from karat.system.files import exchange, sync_folder
from karat.tensors.tensor import CannotStore

_TRIES = 100
_CROSSED = {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}
"""What a rename finds if another session was quicker."""


class Occupied(Exception):  # noqa: N818 - a state of the place
    """The place of a case is taken by what must not be replaced; the message says by what."""


class SameSession(Exception):  # noqa: N818 - a state of the place
    """The place holds a case of this very session."""


class _Glance(msgspec.Struct):
    """All of a manifest that matters here."""

    session: str


def publish(staged: Path, target: Path, session: str) -> None:
    """Renames the staged folder into place; a case of an earlier session makes room for it."""
    made = _make(target.parent)
    _install(staged, target, session)
    for folder in (*made, target.parent):
        sync_folder(folder)


def _make(folder: Path) -> list[Path]:
    """Makes a folder with its parents; those that have an entry more for it."""
    made = [path.parent for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return made


def _install(staged: Path, target: Path, session: str) -> None:
    """Again and again while other sessions move cases in and out of the very place."""
    for left in reversed(range(_TRIES)):
        try:
            if os.path.lexists(target):
                _replace(staged, target, session)
            else:
                staged.rename(target)
        except OSError as error:
            if not left or error.errno not in _CROSSED or not staged.is_dir():
                raise
        else:
            return


def _replace(staged: Path, target: Path, session: str) -> None:
    if _session_of(target) == session:
        raise SameSession
    exchange(staged, target)
    shutil.rmtree(staged, ignore_errors=True)


def _session_of(target: Path) -> str:
    # One look: what was there a moment ago may have been taken away by another session.
    if not stat.S_ISDIR(target.lstat().st_mode):
        raise Occupied(f"expected a case or nothing at {target}, found something else")
    held = os.open(target, os.O_RDONLY)
    try:
        return msgspec.json.decode(_read(held), type=_Glance).session
    except FileNotFoundError:
        # A folder that another session has taken away meanwhile has no manifest any more, either.
        if not os.path.samestat(os.fstat(held), target.stat()):
            raise
        raise Occupied(
            f"expected a case or nothing at {target}, found a folder without {NAME}"
        ) from None
    except msgspec.DecodeError:
        return ""  # a damaged case is replaced by a whole one
    finally:
        os.close(held)


def _read(folder: int) -> bytes:
    """The manifest in a folder that is held open, wherever it was moved to."""
    with open(os.open(NAME, os.O_RDONLY, dir_fd=folder), "rb") as file:  # noqa: PTH123 - no path
        return file.read()


# DOC-HERE session: A capture session in one process: cases are claimed, staged, and then published or dropped.
#
#     DIR/.karat/SESSION/claims/HASH.json          who captures what
#     DIR/.karat/SESSION/staging/HOST.PID.WORKER/  cases whose test has not ended
#     DIR/.karat/SESSION/journal-RUN-WORKER.jsonl  what happened
#     DIR/suite/flow/case/                         cases whose test passed
#
# A capture that fails never raises: it becomes a finding in the journal, and the caller decides.

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Staged(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A case on disk that nobody sees yet."""

    claim: records.Claim
    claimed: Path
    folder: Path
    number: int
    size: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A case that could not be staged: why, and what takes that back should its test not pass."""

    finding: Finding
    path: str
    number: int
    claimed: Path | None = None
    """The claim that says so."""


class Session:
    """Everything that one process captures into one directory."""

    def __init__(
        self, directory: Path, name: str, *, run: str, worker: str = "main", root: Path
    ) -> None:
        self.directory = directory
        self.name = name
        self.run = run
        self.books = directory / BOOKS / name
        self._root = root
        self._here = Path.cwd()
        self._worker = worker
        self._numbers = itertools.count(1)
        self.journal = Journal(self.books / f"journal-{run}-{worker}.jsonl", worker)

    @property
    def _staging(self) -> Path:
        # Asked for each time: a forked process has one of its own.
        return self.books / "staging" / staging_name(self._worker, os.getpid())

    def stage(self, evidence: Evidence) -> Staged | Failed:
        """Claims the identity and writes the case, unseen; or says why not."""
        node, path = evidence.identity.test, ""
        try:
            path = case_path(evidence.identity)
            claim = records.Claim(
                identity=evidence.identity,
                path=path,
                by=f"{node} in {self.journal.worker}",
                host=records.host(),
                pid=os.getpid(),
                run=self.run,
            )
            claimed = records.claim_path(self.books / "claims", path)
            records.take(claimed, claim)
        except records.Taken as taken:
            return self._failed(path, node, self._twice(evidence.identity, taken.claim))
        except Exception as error:  # noqa: BLE001 - the test is not to blame, whatever it is
            return self._failed(path, node, self._reason(evidence.identity, error))
        return self._write(evidence, claim, claimed)

    def refuse(self, identity: Identity, error: KaratError) -> Failed:
        """Notes that a case is not staged, for a reason of the caller's."""
        return self._failed("", identity.test, self._reason(identity, error))

    def _write(self, evidence: Evidence, claim: records.Claim, claimed: Path) -> Staged | Failed:
        node = claim.identity.test
        folder = self._staging / f"{next(self._numbers)}"
        try:
            folder.mkdir(parents=True)
            write_case(folder, self._captured(evidence))
            size = _size(folder)
        except Exception as error:  # noqa: BLE001 - the test is not to blame, whatever it is
            shutil.rmtree(folder, ignore_errors=True)
            self._mark(claimed, claim, "failed")
            reason = self._reason(claim.identity, error)
            return self._failed(claim.path, node, reason, claimed=claimed)
        number = self.journal.note("staged", path=claim.path, node=node, size=size)
        for finding in evidence.findings:
            self.journal.note("note", case=number, path=claim.path, node=node, finding=finding)
        return Staged(claim=claim, claimed=claimed, folder=folder, number=number, size=size)

    def _captured(self, evidence: Evidence) -> Captured:
        return Captured(
            identity=evidence.identity,
            inputs=evidence.inputs,
            expected=evidence.expected,
            program=program_of(evidence.program),
            program_name=evidence.program_name,
            comparator=evidence.comparator,
            seeds=seeds(evidence.seeds),
            environment=environment(self._root, evidence.seen),
            session=self.name,
            created=created(),
            raw=evidence.raw,
            strides=evidence.strides,
        )

    def publish(self, staged: Staged) -> Finding | None:
        """The test passed: the case goes into place, whole."""
        claim = staged.claim
        node = claim.identity.test
        try:
            publish(staged.folder, self.directory / claim.path, self.name)
        except Exception as error:  # noqa: BLE001 - the test is not to blame, whatever it is
            shutil.rmtree(staged.folder, ignore_errors=True)
            self._mark(staged.claimed, claim, "failed")
            finding = self._reason(claim.identity, error)
            return self._failed(claim.path, node, finding, case=staged.number).finding
        self._mark(staged.claimed, claim, "published")
        self.journal.note(
            "captured", case=staged.number, path=claim.path, node=node, size=staged.size
        )
        return None

    def drop(self, taken: Staged | Failed) -> None:
        """The test did not pass: the case was never there, nor wanted."""
        path = taken.claim.path if isinstance(taken, Staged) else taken.path
        if isinstance(taken, Staged):
            shutil.rmtree(taken.folder, ignore_errors=True)
        if taken.claimed is not None:
            records.withdraw(taken.claimed)
        self.journal.note("dropped", case=taken.number, path=path)

    def close(self) -> None:
        """Nothing is staged any more, and nothing more is said."""
        shutil.rmtree(self._staging, ignore_errors=True)
        self.journal.close()

    def _mark(self, path: Path, claim: records.Claim, state: Any) -> None:
        try:
            records.update(path, msgspec.structs.replace(claim, state=state))
        except OSError:
            # Without room for the mark the claim itself still stands; a failed one must not, or
            # the next try would be called a second capture.
            if state == "failed":
                records.withdraw(path)

    def _failed(
        self,
        path: str,
        node: str,
        finding: Finding,
        *,
        case: int = 0,
        claimed: Path | None = None,
    ) -> Failed:
        event: Event = "twice" if finding.kind == "captured-twice" else "failed"
        number = self.journal.note(event, case=case, path=path, node=node, finding=finding)
        return Failed(finding=finding, path=path, number=number, claimed=claimed)

    def _reason(self, identity: Identity, error: Exception) -> Finding:
        if isinstance(error, SameSession):
            return self._twice(identity, None)
        error = _plainly(error)
        kind = "cannot-store" if isinstance(error, CannotStore) else "capture-failed"
        return Finding(
            kind=kind,
            severity=Severity.FAIL,
            message=f"{label(identity)} was not captured: {_words(error)}",
            where=identity.test,
            next=self._advice(error, identity.test),
        )

    def _advice(self, error: Exception, test: str) -> str | None:
        place = shlex.quote(str(self.directory))
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return f"df -h {place}"
        if isinstance(error, KaratError):
            return error.next_command
        if isinstance(error, OSError | Occupied):
            spot = Path(getattr(error, "filename", None) or self.directory)
            return f"ls -ld {shlex.quote(str(standing(spot)))}"
        again = (
            f"pytest {shlex.quote(self._from_here(test))} --karat-capture={place} --karat-strict"
        )
        return again if "::" in test else None

    def _from_here(self, test: str) -> str:
        """A node id as pytest takes it: ids are told from its root folder, paths from where it is started."""
        file, _, name = test.partition("::")
        there = self._root / file
        return f"{os.path.relpath(there, self._here)}::{name}" if there.exists() else test

    def _twice(self, identity: Identity, first: records.Claim | None) -> Finding:
        here = first is not None and first.run == self.run
        by = f" by {first.by}" if first else ""
        advice = (
            'give each capture a name of its own: subtest="…"'
            if here
            else "pytest --karat-session NEW_NAME"
        )
        return Finding(
            kind="captured-twice",
            severity=Severity.FAIL,
            message=f"{label(identity)} was captured before in session {self.name}{by}; the first capture stands",
            where=identity.test,
            next=advice,
        )


def label(identity: Identity) -> str:
    """A case in a sentence."""
    subtest = f" ({identity.subtest})" if identity.subtest else ""
    return f"{identity.test}{subtest} [{identity.suite}/{identity.flow}]"


def session_name(option: str | None, environ: Mapping[str, str]) -> str:
    """--karat-session, KARAT_SESSION, the CI run and attempt, or a name of its own."""
    for origin, told in (
        ("--karat-session", option),
        ("KARAT_SESSION", environ.get("KARAT_SESSION")),
    ):
        if told and not _SAFE.fullmatch(told):
            raise UsageError(
                f"{origin}: expected up to 100 letters, digits, dots, dashes and underscores, found {told!r}",
                next_command="pytest --karat-session nightly-1",
            )
        if told:
            return told
    return session_of(environ) or f"local-{os.urandom(8).hex()}"


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _plainly(error: Exception) -> Exception:
    """What a library written in Rust says of the disk, as Python would."""
    told = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(told[1]), os.strerror(int(told[1]))) if told else error


def _words(error: Exception) -> str:
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror or error}{where}"
    if isinstance(error, CannotStore | KaratError | Occupied):
        return str(error)
    return f"{type(error).__name__}: {error}"
