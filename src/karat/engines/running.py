"""Running a job: its commands one after the other, in a slot; the one runner of every engine."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from karat.engines.collecting import Collected, Stamps, stamps
from karat.engines.foreign import without_foreign
from karat.engines.guarding import Cancelled, Guard, WardenLost
from karat.engines.hashing import combined, hash_files
from karat.engines.identity import identity_key, read_identity
from karat.engines.job import Command, Job, JobResult, Ran
from karat.engines.placeholders import filled, filled_text, filled_words
from karat.engines.slots import Slot

OUT = "KARAT_OUT"
_MEASURED = {"warmup", "measure"}


def run_job(job: Job, slot: Slot, cancelled: Callable[[], bool]) -> JobResult:
    """What came of a job. When it returns, no process of it is left; `lost` says so if it could not be brought to an end."""
    started, clock = time.time(), time.monotonic()
    slot.area.mkdir(parents=True, exist_ok=True)
    out = _empty_folder(slot.area)
    run = _Run(job, slot, out)
    lost = ""
    guard = Guard(slot, secrets.token_hex(12), cancelled)
    try:
        run.commands(guard)
    except WardenLost as error:
        lost = str(error)
    except Cancelled:
        lost = "cancelled"
    finally:
        guard.close()
        collected = run.collected() if not lost else Collected()
        _remove(out)
    return JobResult(
        key=job.key,
        ran=tuple(run.ran),
        started=started,
        seconds=time.monotonic() - clock,
        where=slot.where,
        files=collected.files,
        hashes=run.hashes,
        identity=run.identity,
        identity_key=run.key,
        shared=run.shared,
        lost=lost,
        notes=(*guard.notes, *run.notes, *collected.notes),
    )


class _Run:
    """A job under way, and what is known of it so far."""

    def __init__(self, job: Job, slot: Slot, out: Path) -> None:
        self._job, self._slot, self._out = job, slot, out
        self._words = {
            "AREA": str(slot.area),
            "OUT": str(out),
            "SLOT": str(slot.number),
            "GPUS": ",".join(slot.gpus),
            "CORES": ",".join(map(str, slot.cores)),
        }
        # Where the last command runs: what a probe leaves beside itself is there.
        last = job.commands[-1].cwd if job.commands else "@AREA@"
        self._end = Path(filled_text(last, self._words))
        self.ran: list[Ran] = []
        self.identity: dict[str, str] = dict(job.identity)
        self.hashes: dict[str, str] = {}
        self._settled = False
        self._before: Stamps | None = None
        self.key = ""
        self.shared = False
        self.notes: list[str] = []

    def commands(self, guard: Guard) -> None:
        """Run what is needed; stop at the first failure that is not allowed, or where the identity is known."""
        for command in self._job.commands:
            if command.role in _MEASURED and not self._settled:
                self._settle()
                if self.shared:
                    return
            ready = filled(command, self._words)
            if command.role == "measure" and self._before is None:
                self._before = stamps(self._end, self._job.collect)
            ran = self._command(guard, ready)
            self.ran.append(ran)
            if not (command.may_fail or ran.skipped or ran.exit_code == 0):
                return
        if not self._settled:
            self._settle()

    def _command(self, guard: Guard, command: Command) -> Ran:
        env = self._environment(command)
        if command.unless and guard.succeeds(command, env):
            return Ran(role=command.role, name=command.name, skipped=True)
        ran, printed = guard.run(command, env)
        if command.role == "identify" and ran.exit_code == 0:
            self.identity |= read_identity(printed)
        return ran

    def _environment(self, command: Command) -> dict[str, str]:
        base: Mapping[str, str] = os.environ if self._slot.env is None else self._slot.env
        env = {**without_foreign(base), OUT: str(self._out), **command.env}
        if self._slot.gpus:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(self._slot.gpus)
        # A command may have a part of the folder for itself.
        if Path(env[OUT]).is_relative_to(self._out):
            # Where an earlier command put something else there, this one is to see it.
            with contextlib.suppress(FileExistsError, NotADirectoryError):
                Path(env[OUT]).mkdir(parents=True, exist_ok=True)
        return env

    def _settle(self) -> None:
        """What is under test, before the first run that is measured."""
        self._settled = True
        patterns = filled_words(self._job.hash_files, self._words)
        self.hashes = hash_files(self._slot.area, patterns)
        if self.hashes:
            self.identity["files.sha256"] = combined(self.hashes)
        elif patterns:
            self.notes.append(
                f"no file matches {', '.join(self._job.hash_files)}, so none was hashed"
            )
        self.key = identity_key(self.identity)
        self.shared = bool(self.key) and self.key in self._job.known

    def collected(self) -> Collected:
        """Files of the job's own folder, then of the folder its last command ran in."""
        found = Collected()
        # A container that has the area must not choose what this machine reads.
        if self._out.is_symlink():
            self.notes.append("KARAT_OUT was replaced by a link; nothing of it came back")
        else:
            found.add(self._out, self._job.collect)
        if self._before is not None:
            found.add(self._end, self._job.collect, self._before, without=self._out)
        return found


def _empty_folder(area: Path) -> Path:
    """The job's own folder: always of the same name, since builds may depend on it."""
    folder = area / ".out"
    _remove(folder)
    number = 2
    # A container's root may have left files that are not ours to remove.
    while os.path.lexists(folder):
        folder = area / f".out-{number}"
        _remove(folder)
        number += 1
    folder.mkdir()
    return folder


def _remove(folder: Path) -> None:
    # What cannot be removed stays: another's files, or a tree that is deeper than Python goes.
    with contextlib.suppress(OSError, RecursionError):
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        shutil.rmtree(folder, ignore_errors=True)
