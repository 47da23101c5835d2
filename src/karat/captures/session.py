"""A capture session in one process: cases are claimed, staged, and then published or dropped.

    DIR/.karat/SESSION/claims/HASH.json          who captures what
    DIR/.karat/SESSION/staging/HOST.PID.WORKER/  cases whose test has not ended
    DIR/.karat/SESSION/journal-RUN-WORKER.jsonl  what happened
    DIR/suite/flow/case/                         cases whose test passed

A capture that fails never raises: it becomes a finding in the journal, and the caller decides.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from karat.bundles.compare import control_findings
from karat.bundles.layout import OWN
from karat.bundles.manifest import NAME, Identity, case_path
from karat.bundles.write import CaseContent, NewCase, write_case
from karat.captures import records
from karat.captures.check import CaseToCapture
from karat.captures.environment import created, environment, seeds
from karat.captures.records import CaptureJournal, Event, staging_name
from karat.findings import Finding, KaratError, UsageError, fail
from karat.system.ci import session_of
from karat.system.command import Command
from karat.system.files import exchange, sync_all
from karat.tensors.tensor import CannotStore

VARIABLES = ("KARAT_CAPTURE_DIR", "GOLDEN_ARTIFACTS_DIR")
"""The first that is set wins; karat's own name stands before the one that suites already use."""
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TRIES = 100
_RACED = {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}  # What a rename finds if another session was quicker.


class CaptureDirectory(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    origin: str  # The option or variable that named it.


def capture_directory(option: str | None, environ: Mapping[str, str], base: Path) -> CaptureDirectory | None:
    """Option before KARAT_CAPTURE_DIR before GOLDEN_ARTIFACTS_DIR; empty is unset; None is off."""
    named = [("--karat-capture", option), *((name, environ.get(name)) for name in VARIABLES)]
    for origin, text in named:
        if text:
            path = os.path.join(base, os.path.expanduser(text))  # noqa: PTH111, PTH118 - asked for with every capture
            return CaptureDirectory(path=Path(os.path.normpath(path)), origin=origin)
    return None


def prepare(directory: CaptureDirectory) -> None:
    """Make the directory and try to write to it."""
    path = directory.path
    try:
        (path / OWN).mkdir(parents=True, exist_ok=True)
        # A few pages that really reach the disk: a full or read-only one says so now, not in a test.
        name = path / OWN / f"probe-{os.urandom(8).hex()}"
        try:
            with name.open("xb") as file:
                file.write(b"\0" * 8192)
                file.flush()
                os.fsync(file.fileno())
        finally:
            name.unlink(missing_ok=True)
    except OSError as error:
        look = ("df", "-h") if error.errno in {errno.ENOSPC, errno.EDQUOT} else ("ls", "-ld")
        said = (
            f"{directory.origin}: expected a directory that can be written to at {path}, but: {error.strerror or error}"
        )
        raise UsageError(said, next_command=Command(*look, str(nearest_existing(path)))) from error


def nearest_existing(path: Path) -> Path:
    """The path, or the nearest of its parents, that exists in some form."""
    return next((p for p in (path, *path.parents) if os.path.lexists(p)), path)


class Occupied(Exception):  # noqa: N818 - a state of the place
    """Something that must not be replaced lies where the case should; the message says what."""


class SameSession(Exception):  # noqa: N818 - a state of the place
    """The place holds a case of this very session."""


class StagedCase(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A case on disk that nobody sees yet."""

    claim: records.CaptureClaim
    claimed: Path
    folder: Path
    number: int
    size: int


class FailedCase(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A case that could not be staged: why, and what takes that back should its test not pass."""

    finding: Finding
    path: str
    number: int
    claimed: Path | None = None  # The claim that says so.


class Session:
    """Everything that one process captures into one directory."""

    def __init__(self, directory: Path, name: str, *, run: str, worker: str = "main", root: Path) -> None:
        self.directory, self.name, self.run = directory, name, run
        self.records = directory / OWN / name
        self._root = root
        self._here = Path.cwd()
        self._worker = worker
        self._numbers = itertools.count(1)
        self.journal = CaptureJournal(self.records / f"journal-{run}-{worker}.jsonl", worker)

    @property
    def _staging(self) -> Path:
        # Asked for each time: a forked process has one of its own.
        return self.records / "staging" / staging_name(self._worker, os.getpid())

    def stage(self, case: CaseToCapture) -> StagedCase | FailedCase:
        """Claim the identity and write the case where nobody sees it; or say why not."""
        node, path = case.identity.test, ""
        try:
            path = case_path(case.identity)
            claim = records.CaptureClaim(
                identity=case.identity,
                path=path,
                by=f"{node} in {self.journal.worker}",
                host=records.host(),
                pid=os.getpid(),
                run=self.run,
            )
            claimed = records.claim_path(self.records / "claims", path)
            records.take_claim(claimed, claim)
        except records.AlreadyClaimed as taken:
            return self._failed(path, node, self._twice(case.identity, taken.claim))
        except Exception as error:  # noqa: BLE001 - the test is not to blame, whatever it is
            return self._failed(path, node, self._reason(case.identity, error))
        folder = self._staging / f"{next(self._numbers)}"
        try:
            folder.mkdir(parents=True)
            told = {name: getattr(case, name) for name in CaseContent.__struct_fields__}
            told |= {"program": _program(case.program), "seeds": seeds(case.seeds)}
            here = environment(self._root, case.seen)
            manifest = write_case(folder, NewCase(**told, environment=here, session=self.name, created=created()))
            size = sum(os.path.getsize(f"{at}/{file}") for at, _, files in os.walk(folder) for file in files)  # noqa: PTH202 - quicker
        except Exception as error:  # noqa: BLE001 - the test is not to blame, whatever it is
            shutil.rmtree(folder, ignore_errors=True)
            self._mark(claimed, claim, "failed")
            return self._failed(path, node, self._reason(case.identity, error), claimed=claimed)
        number = self.journal.note("staged", path=path, node=node, size=size)
        for finding in (*case.findings, *control_findings(manifest)):
            self.journal.note("note", case=number, path=path, node=node, finding=finding)
        return StagedCase(claim=claim, claimed=claimed, folder=folder, number=number, size=size)

    def refuse(self, identity: Identity, error: KaratError) -> FailedCase:
        """Note that a case is not staged, for a reason of the caller's."""
        return self._failed("", identity.test, self._reason(identity, error))

    def publish(self, staged: StagedCase) -> Finding | None:
        """The test passed: the case goes into place, whole."""
        claim, node = staged.claim, staged.claim.identity.test
        try:
            publish(staged.folder, self.directory / claim.path, self.name)
        except Exception as error:  # noqa: BLE001 - the test is not to blame, whatever it is
            shutil.rmtree(staged.folder, ignore_errors=True)
            self._mark(staged.claimed, claim, "failed")
            finding = self._reason(claim.identity, error)
            return self._failed(claim.path, node, finding, case=staged.number).finding
        self._mark(staged.claimed, claim, "published")
        self.journal.note("captured", case=staged.number, path=claim.path, node=node, size=staged.size)
        return None

    def drop(self, taken: StagedCase | FailedCase) -> None:
        """The test did not pass: the case was never there, nor wanted."""
        path = taken.claim.path if isinstance(taken, StagedCase) else taken.path
        if isinstance(taken, StagedCase):
            shutil.rmtree(taken.folder, ignore_errors=True)
        if taken.claimed is not None:
            records.withdraw_claim(taken.claimed)
        self.journal.note("dropped", case=taken.number, path=path)

    def close(self) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)
        self.journal.close()

    def _mark(self, path: Path, claim: records.CaptureClaim, state: Any) -> None:
        try:
            records.update_claim(path, msgspec.structs.replace(claim, state=state))
        except OSError:
            # Without room for the mark the claim itself still stands; a failed one must not, or
            # the next try would be called a second capture.
            if state == "failed":
                records.withdraw_claim(path)

    def _failed(
        self, path: str, node: str, finding: Finding, *, case: int = 0, claimed: Path | None = None
    ) -> FailedCase:
        event: Event = "twice" if finding.kind == "captured-twice" else "failed"
        number = self.journal.note(event, case=case, path=path, node=node, finding=finding)
        return FailedCase(finding=finding, path=path, number=number, claimed=claimed)

    def _reason(self, identity: Identity, error: Exception) -> Finding:
        if isinstance(error, SameSession):
            return self._twice(identity, None)
        kind = "cannot-store" if isinstance(error, CannotStore) else "capture-failed"
        why = f"{type(error).__name__}: {error}"
        if isinstance(error, OSError):
            why = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        elif isinstance(error, CannotStore | KaratError | Occupied):
            why = str(error)
        said = f"{identity.label} was not captured: {why}"
        return fail(kind, said, where=identity.test, next=self._advice(error, identity.test))

    def _advice(self, error: Exception, test: str) -> str | None:
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return str(Command("df", "-h", str(self.directory)))
        if isinstance(error, KaratError):
            return error.next_command
        if isinstance(error, OSError | Occupied):
            spot = Path(getattr(error, "filename", None) or self.directory)
            return str(Command("ls", "-ld", str(nearest_existing(spot))))
        if "::" not in test:
            return None
        # Node ids start at pytest's root folder, paths on its command line where it is started.
        file, _, name = test.partition("::")
        if (self._root / file).exists():
            test = f"{os.path.relpath(self._root / file, self._here)}::{name}"
        return str(Command("pytest", test, f"--karat-capture={self.directory}", "--karat-strict"))

    def _twice(self, identity: Identity, first: records.CaptureClaim | None) -> Finding:
        by = f" by {first.by}" if first else ""
        said = f"{identity.label} was captured before in session {self.name}{by}; the first capture stands"
        ours = first is not None and first.run == self.run
        then = 'give each capture a name of its own: subtest="…"' if ours else "pytest --karat-session NEW_NAME"
        return fail("captured-twice", said, where=identity.test, next=then)


def publish(staged: Path, target: Path, session: str) -> None:
    """Rename the staged folder into place; it replaces a case of an earlier session."""
    folders = [target.parent]
    if not target.parent.is_dir():
        folders += [path.parent for path in itertools.takewhile(lambda path: not path.exists(), target.parents)]
        target.parent.mkdir(parents=True, exist_ok=True)
    # Again and again while other sessions move cases in and out of the very place.
    for left in reversed(range(_TRIES)):
        try:
            if not os.path.lexists(target):
                staged.rename(target)
            elif _session_of(target) == session:
                raise SameSession
            else:
                exchange(staged, target)
                shutil.rmtree(staged, ignore_errors=True)
            break
        except OSError as error:
            if not left or error.errno not in _RACED or not staged.is_dir():
                raise
    sync_all(folders)


def _session_of(target: Path) -> str:
    # One look: what was there a moment ago may have been taken away by another session.
    if not stat.S_ISDIR(target.lstat().st_mode):
        raise Occupied(f"expected a case or nothing at {target}, found something else")
    held = os.open(target, os.O_RDONLY)
    try:
        # The manifest in the folder that is held open, wherever it was moved to.
        with open(os.open(NAME, os.O_RDONLY, dir_fd=held), "rb") as file:  # noqa: PTH123 - no path
            return str(msgspec.json.decode(file.read(), type=dict[str, Any])["session"])
    except FileNotFoundError:
        # A folder that another session has taken away meanwhile has no manifest any more, either.
        if not os.path.samestat(os.fstat(held), target.stat()):
            raise
        raise Occupied(f"expected a case or nothing at {target}, found a folder without {NAME}") from None
    except (ValueError, RecursionError, KeyError):
        return ""  # a damaged case is replaced by a whole one
    finally:
        os.close(held)


def session_name(option: str | None, environ: Mapping[str, str]) -> str:
    """--karat-session, KARAT_SESSION, the CI run and attempt, or a random name."""
    for origin, name in (("--karat-session", option), ("KARAT_SESSION", environ.get("KARAT_SESSION"))):
        if name and not _SAFE.fullmatch(name):
            said = f"{origin}: expected up to 100 letters, digits, dots, dashes and underscores, found {name!r}"
            raise UsageError(said, next_command="pytest --karat-session nightly-1")
        if name:
            return name
    return session_of(environ) or f"local-{os.urandom(8).hex()}"


def _program(value: Any) -> Path | bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str | os.PathLike):
        return Path(os.fsdecode(value))
    raise CannotStore(f"program: expected a path or bytes, found {type(value).__name__}")
