"""The runner of every engine: the commands of a job, one after the other, in a slot, through a supervisor.

A slot runs one job at a time and has a folder, cores and GPUs of its own. See `karat.engines.supervisor`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import msgspec

import karat
from karat.engines.files import FILES, CollectedFiles, Stamps, combined_hash, hash_files, stamps
from karat.engines.job import Job, JobCommand, JobResult, Ran
from karat.engines.supervisor import CommandEnded
from karat.findings import KaratError
from karat.system.git import without_foreign
from karat.system.hashes import sha256_hex
from karat.system.locks import own_temporary_folder, take
from karat.system.processes import MARK, end_marked
from karat.system.secrets import scrub, secrets_in, withhold

OUT = "KARAT_OUT"
AREAS = "KARAT_AREAS"  # A node's environment variable: where its areas are, instead of the folder for temporary files.
_BEGIN = "import sys; sys.path.append(sys.argv[1]); from karat.engines.supervisor import main; main()"
_LOOK_AGAIN = 50  # milliseconds
_PATIENCE = 120.0
_UNLESS_TIMEOUT = 60.0
_LINE = re.compile(r"\s*([A-Za-z_][\w.\-/+]{0,199})\s*=\s*(.*?)\s*")
_MEASURED = {"warmup", "measure"}
_KILLED, _CANCELLED = "the supervisor of the job was killed", "cancelled"


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """Where one job runs at a time."""

    number: int
    area: Path  # The kept folder.
    cores: tuple[int, ...] = ()  # Cores that nobody else uses; empty: not pinned.
    gpus: tuple[str, ...] = ()  # GPUs that nobody else uses, as CUDA_VISIBLE_DEVICES names them.
    held: tuple[int, ...] = ()
    """Descriptors of locks: the supervisor keeps them, so that they last as long as the last process of a job."""
    node: str = ""  # Of a cluster: which node.
    env: Mapping[str, str] | None = None  # The environment commands run in; None: the runner's own.

    @property
    def where(self) -> str:
        devices = {"node": self.node, "cores": ",".join(map(str, self.cores)), "GPUs": ",".join(self.gpus)}
        known = [f"{what} {names}" for what, names in devices.items() if names]
        return ", ".join([f"{socket.gethostname()} slot {self.number}", *known])


def free_slot(work: Path, **more: Any) -> Slot:
    """The first slot that nobody else uses; another folder costs little, so there is always one."""
    number = 0
    while (handle := take(work / f"slot-{number}.lock")) is None:
        number += 1
    return Slot(number=number, area=work / f"slot-{number}", held=(handle,), **more)


def areas_of(work: Path) -> str:
    """What a node calls the areas of a hunt; the same every time, so that clones and builds there are found again."""
    return f"hunt-{sha256_hex(os.fsencode(f'{socket.gethostname()}:{work.absolute()}'))[:12]}"


def run_in_free_slot(job: Job, areas: str, cancelled: Callable[[], bool], **more: Any) -> JobResult:
    """What a node of a cluster runs: a job, in a free slot of those areas."""
    started = time.time()
    try:
        slot = free_slot(Path(os.environ.get(AREAS) or own_temporary_folder()) / areas, **more)
        try:
            return run_job(job, slot, cancelled)
        finally:
            os.close(slot.held[0])
    except (OSError, KaratError) as error:
        # A full disk, a folder that may not be written: another node may do better.
        return JobResult(key=job.key, started=started, where=str(more.get("node", "")), lost=str(error))


def fill_text(text: str, words: Mapping[str, str]) -> str:
    """A text with `@AREA@` and the others replaced; what replaces one is not looked at again."""
    return re.sub(f"@({'|'.join(words)})@", lambda found: words.get(found[1], found[0]), text)


def fill_words(texts: tuple[str, ...], words: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(fill_text(text, words) for text in texts)


def fill_command(command: JobCommand, words: Mapping[str, str]) -> JobCommand:
    return msgspec.structs.replace(
        command,
        argv=fill_words(command.argv, words),
        cwd=fill_text(command.cwd, words),
        env={name: fill_text(value, words) for name, value in command.env.items()},
        unless=fill_words(command.unless, words),
        when_killed=tuple(fill_words(each, words) for each in command.when_killed),
    )


def read_identity(output: bytes) -> dict[str, str]:
    """What an `identify` command printed, lines of `name=value`; other lines are ignored."""
    matches = (_LINE.fullmatch(line) for line in output.decode("utf-8", "backslashreplace").splitlines())
    pairs = {match[1]: match[2][:4096] for match in matches if match}
    return dict(islice(pairs.items(), 1000))


def identity_key(identity: Mapping[str, str]) -> str:
    """One digest of an identity; empty where nothing is known, since that equals nothing.

    Where built files are known, commits tell no more: two of which nothing else comes out are the same thing.
    """
    if not identity:
        return ""
    told = {name: each for name, each in identity.items() if FILES not in identity or not name.startswith("commit.")}
    canonical = json.dumps(told, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return sha256_hex(canonical.encode())


class JobLost(Exception):  # noqa: N818 - what became of it
    """The job cannot be finished; the text says why. Nothing is known of the command that ran."""


class SupervisedCommands:
    """Runs commands through a supervisor of their own; everything they start ends with it."""

    def __init__(self, slot: Slot, token: str, cancelled: Callable[[], bool]) -> None:
        self._token, self._cancelled = token, cancelled
        self.notes: list[str] = []
        self._process = subprocess.Popen(
            # Isolated: neither the folder it starts in nor PYTHONPATH may get between it and its work.
            [sys.executable, "-I", "-S", "-c", _BEGIN, str(Path(karat.__file__).parents[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            pass_fds=slot.held,
            # The next process that code under test could look at.
            env=withhold(os.environ),
        )
        self._orders = cast("IO[bytes]", self._process.stdin)
        self._answers = cast("IO[bytes]", self._process.stdout)
        # Not select, which knows no descriptor above 1,023: a machine may have hundreds of slots.
        self._answered = select.poll()
        self._answered.register(self._answers, select.POLLIN)
        if slot.cores:
            # Before it has started anything; what it starts has the same cores.
            os.sched_setaffinity(self._process.pid, slot.cores)

    def run(self, command: JobCommand, env: Mapping[str, str]) -> tuple[Ran, bytes]:
        """Run a command to its end; also returns its stdout alone if its role is to identify."""
        ended, outputs = self._ask(
            argv=command.argv,
            cwd=command.cwd,
            env={**env, MARK: self._token},
            timeout=command.timeout,
            when_killed=command.when_killed,
            apart=command.role == "identify",
            sweep=command.role in _MEASURED,
        )
        if ended.left:
            self.notes.append(f"{ended.left} processes of {command.name or command.role} could not be ended")
        status = ended.status
        ran = Ran(
            role=command.role,
            name=command.name,
            exit_code=None if status is None or status < 0 or ended.timed_out else status,
            signal=-status if status is not None and status < 0 else None,
            timed_out=ended.timed_out,
            seconds=ended.seconds,
            output=b"".join(reversed(outputs)),
            error=ended.error,
        )
        return ran, outputs[0]

    def succeeds(self, command: JobCommand, env: Mapping[str, str]) -> bool:
        """Whether the command's `unless` says that it is not needed."""
        timeout = min(command.timeout or _UNLESS_TIMEOUT, _UNLESS_TIMEOUT)
        unless = msgspec.structs.replace(command, role="prepare", argv=command.unless, timeout=timeout, when_killed=())
        return self.run(unless, env)[0].exit_code == 0

    def _ask(self, **order: Any) -> tuple[CommandEnded, list[bytes]]:
        if self._cancelled():
            raise JobLost(_CANCELLED)
        self._send(order)
        asked = False
        while not self._answered.poll(_LOOK_AGAIN):
            if not asked and self._cancelled():
                asked = True
                self._send({"kill": True})
        line = self._answers.readline()
        if not line.endswith(b"\n"):
            raise JobLost(_KILLED)
        answer = json.loads(line)
        outputs = [self._answers.read(size) for size in answer.pop("sizes")]
        if asked:
            raise JobLost(_CANCELLED)
        return CommandEnded(**answer), outputs

    def _send(self, order: dict[str, Any]) -> None:
        # json, not msgspec: paths may hold what is no text, and its escapes bring them over as they are.
        try:
            self._orders.write(json.dumps(order).encode() + b"\n")
            self._orders.flush()
        except BrokenPipeError:
            raise JobLost(_KILLED) from None

    def close(self) -> None:
        """End everything that carries the job's mark; returns when it has ended."""
        with contextlib.suppress(BrokenPipeError):
            self._orders.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.returncode != 0:
            end_marked(self._token)
        self._answers.close()


def run_job(job: Job, slot: Slot, cancelled: Callable[[], bool]) -> JobResult:
    """Run a job. When it returns, none of its processes is left; `lost` says why it could not be finished."""
    started, clock = time.time(), time.monotonic()
    slot.area.mkdir(parents=True, exist_ok=True)
    # Always of the same name, since builds may depend on it.
    folder = slot.area / ".out"
    _remove(folder)
    number = 2
    # A container's root may have left files that are not ours to remove.
    while os.path.lexists(folder):
        folder = slot.area / f".out-{number}"
        _remove(folder)
        number += 1
    folder.mkdir()
    run = _Run(job, slot, folder)
    lost = ""
    guard = SupervisedCommands(slot, secrets.token_hex(12), cancelled)
    try:
        run.commands(guard)
    except JobLost as error:
        lost = str(error)
    finally:
        guard.close()
        collected = run.collected() if not lost else CollectedFiles()
        _remove(folder)
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
        self._end = Path(fill_text(last, self._words))
        self.ran: list[Ran] = []
        self.identity: dict[str, str] = dict(job.identity)
        self.hashes: dict[str, str] = {}
        self.key, self.shared = "", False
        self.notes: list[str] = []
        self._settled = False
        self._before: Stamps | None = None
        self._environment = os.environ if slot.env is None else slot.env
        given = (command.env for command in job.commands)
        self._secrets = secrets_in(self._environment, *given)

    def commands(self, guard: SupervisedCommands) -> None:
        """Run what is needed; stop at the first failure that is not allowed, or where the identity is known."""
        for command in self._job.commands:
            if command.role in _MEASURED and not self._settled:
                self._settle()
                if self.shared:
                    return
            ready = fill_command(command, self._words)
            if command.role == "measure" and self._before is None:
                self._before = stamps(self._end, self._job.collect)
            ran = self._command(guard, ready)
            self.ran.append(ran)
            if not (command.may_fail or ran.skipped or ran.exit_code == 0):
                return
        if not self._settled:
            self._settle()

    def _command(self, guard: SupervisedCommands, command: JobCommand) -> Ran:
        base = withhold(self._environment, (*self._job.passed, *command.passed))
        env = {**without_foreign(base), OUT: str(self._out), **command.env}
        if self._slot.gpus:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(self._slot.gpus)
        # A command may have a part of the folder for itself.
        if Path(env[OUT]).is_relative_to(self._out):
            # Where an earlier command put something else there, this one is to see it.
            with contextlib.suppress(FileExistsError, NotADirectoryError):
                Path(env[OUT]).mkdir(parents=True, exist_ok=True)
        if command.unless and guard.succeeds(command, env):
            return Ran(role=command.role, name=command.name, skipped=True)
        ran, printed = guard.run(command, env)
        if command.role == "identify" and ran.exit_code == 0:
            self.identity |= read_identity(scrub(printed, self._secrets))
        output, error = scrub(ran.output, self._secrets), scrub(ran.error, self._secrets)
        return msgspec.structs.replace(ran, output=output, error=error)

    def _settle(self) -> None:
        """What is under test, before the first run that is measured."""
        self._settled = True
        patterns = fill_words(self._job.hash_files, self._words)
        self.hashes = hash_files(self._slot.area, patterns)
        if self.hashes:
            self.identity[FILES] = combined_hash(self.hashes)
        elif patterns:
            self.notes.append(f"no file matches {', '.join(self._job.hash_files)}, so none was hashed")
        self.key = identity_key(self.identity)
        self.shared = bool(self.key) and self.key in self._job.known

    def collected(self) -> CollectedFiles:
        """Files of the job's own folder, then of the folder its last command ran in."""
        found = CollectedFiles()
        # A container that has the area must not choose what this machine reads.
        if self._out.is_symlink():
            self.notes.append("KARAT_OUT was replaced by a link; its files were not collected")
        else:
            found.add(self._out, self._job.collect)
        if self._before is not None:
            found.add(self._end, self._job.collect, self._before, without=self._out)
        return found


def _remove(folder: Path) -> None:
    # What cannot be removed stays: another's files, or a tree that is deeper than Python goes.
    with contextlib.suppress(OSError, RecursionError):
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        shutil.rmtree(folder, ignore_errors=True)
