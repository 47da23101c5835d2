"""The Slurm engine: each job of a hunt is a batch job, jobs that start together are one array; a lost one goes elsewhere.

Driver and nodes meet in the hunt's work folder, which must be on a shared disk, as must Python and karat: the driver leaves
jobs there, and its heartbeat; nodes leave results. Slurm itself requeues nothing, so that every attempt is counted and
reported. A driver that is killed leaves no job behind: jobs end when its heartbeat stops, and the next start cancels what is
still in the queue.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

import karat
from karat.engines.job import EDIT, ClusterRoom, Engine, EngineSettings, Flight, Job, JobResult, Resources
from karat.engines.runner import areas_of, run_in_free_slot
from karat.findings import CannotVerify, UsageError
from karat.report.words import count
from karat.system.files import write_bytes
from karat.system.locks import take
from karat.system.secrets import EVERYTHING, withhold

_BEGIN = "import sys; sys.path.append(sys.argv[1]); from karat.engines.slurm_engine import work; work(*sys.argv[2:])"
_LOOK, _ASK, _FRESH = 0.1, 1.0, 30.0
_BEAT, _SILENCE = 5.0, 60.0
_ARRIVAL = 60.0  # A shared disk may show a result later than the queue shows that its job has ended.
_ENDING, _REACH = 40.0, 10.0
_OF_SRUN = re.compile(rb"^srun: error: \S+: tasks? [\d,-]+: [^\n]*\n", re.MULTILINE)
_MOST = 16  # Jobs at once where nobody said how many: others use the queue, too.
_ANSWER = 60.0
_AWAY = re.compile(r"[Uu]nable to contact slurm controller|Socket timed out|[Cc]onnection refused|Zero Bytes were")
_GRES = re.compile(r"(\w+)(?::[^:,()]+)?:(\d+)(?:\([^()]*\))?(?=,|$)")  # gpu:h100:8(S:0-1)
_UP = {"idle", "mix", "alloc", "comp", "plnd"}
_POWER = "~#%!@^+$"  # What follows a state of a node that can be switched on; `*` is one that does not answer.
_UNDER_WAY = {"PENDING", "RUNNING", "CONFIGURING", "SUSPENDED", "REQUEUED", "STAGE_OUT", "SIGNALING", "RESIZING"}


class QueuedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the queue shows it."""

    state: str
    node: str = ""
    reason: str = ""
    seconds: float | None = None  # From its start to its end; None: it has not ended.

    @property
    def is_over(self) -> bool:
        return self.state not in _UNDER_WAY


class Slurm:
    """A cluster that answers. `options` are words for sbatch: --partition=gpu, --account=x, --time=30."""

    def __init__(self, options: Sequence[str], notice: Callable[[str], None]) -> None:
        self._options, self._notice = tuple(options), notice
        self.patience = 300.0  # Seconds; a controller that is started anew keeps its jobs.
        # Those that also say which nodes are meant.
        self._where = [word for word in options if word.startswith(("--partition=", "--clusters="))]
        if shutil.which("sbatch") is None:
            said = 'engine = "slurm" needs the commands of Slurm (sbatch, squeue, scancel), which are not on the PATH'
            raise UsageError(said, next_command="karat hunt --engine local  # or run it on a login node")

    def nodes(self) -> list[dict[str, float]]:
        """What each node has that takes jobs."""
        found: dict[str, dict[str, float]] = {}
        for line in self._ask(["sinfo", "--noheader", "--Node", *self._where, "--format=%N|%t|%c|%m|%G"]).splitlines():
            name, state, cores, memory, gres = line.split("|")
            if state.rstrip(_POWER) in _UP:
                more: dict[str, float] = {}
                for kind, number in _GRES.findall(gres):
                    called = "GPU" if kind == "gpu" else kind
                    more[called] = more.get(called, 0) + int(number)
                found[name] = {"CPU": float(cores), "memory": float(memory.rstrip("+")) * 2**20, **more}
        return list(found.values())  # a node of two partitions is listed twice

    def submit(
        self, script: str, folder: Path, *, name: str, count: int, resources: Resources, env: Mapping[str, str]
    ) -> str:
        """Submit a script, `count` times as an array; its number."""
        gres = {"gpu": resources.gpus, **resources.custom}
        wanted = ",".join(f"{kind}:{number:g}" for kind, number in gres.items() if number)
        words = [
            *("sbatch", "--parsable", "--no-requeue", f"--job-name={name}", f"--chdir={folder}", "--input=none"),
            *("--ntasks=1", f"--cpus-per-task={resources.cores:g}"),
            *((f"--gres={wanted}",) if wanted else ()),
            *((f"--mem={-(-resources.memory // 2**20)}M",) if resources.memory else ()),
            *((f"--array=0-{count - 1}", "--output=%a.log") if count > 1 else ("--output=0.log",)),
            *self._options,
        ]
        return self._ask(words, script, env).strip().partition(";")[0]

    def queue(self, name: str) -> dict[str, QueuedJob]:
        """Jobs of that name that Slurm still knows of, the finished ones included."""
        words = ["squeue", "--noheader", "--array", "--states=all", f"--name={name}", "--format=%i|%T|%N|%r|%S|%e"]
        found = {}
        for line in self._ask(words).splitlines():
            number, state, node, reason, start, end = line.split("|")
            job = QueuedJob(state=state, node=node, reason=reason)
            found[number] = msgspec.structs.replace(job, seconds=_between(start, end) if job.is_over else None)
        return found

    def cancel(self, name: str, *numbers: str) -> None:
        """End jobs of that name, all of them or those with these numbers."""
        self._ask(["scancel", "--quiet", *(numbers or [f"--name={name}"])])

    def accounted(self, name: str, since: float) -> dict[str, float]:
        """Job → seconds that it held its resources, as sacct has them; nothing where there is no accounting."""
        start = dt.datetime.fromtimestamp(since).strftime("%Y-%m-%dT%H:%M:%S")  # noqa: DTZ006 - as Slurm reads it
        words = ["sacct", "--noheader", "--parsable2", "--allocations", f"--name={name}", f"--starttime={start}"]
        try:
            words += ["--format=JobID,ElapsedRaw"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=_ANSWER, check=True)
        except (OSError, subprocess.SubprocessError):
            return {}
        rows = (line.split("|") for line in done.stdout.splitlines())
        return {number: float(seconds) for number, seconds in rows if seconds.isdigit()}

    def _ask(self, words: Sequence[str], text: str = "", env: Mapping[str, str] | None = None) -> str:
        """What a command of Slurm printed; waits for a controller that is away."""
        until, told = time.monotonic() + self.patience, False
        while True:
            try:
                done = subprocess.run(
                    words,
                    input=text,
                    env=env or os.environ,
                    capture_output=True,
                    text=True,
                    timeout=_ANSWER,
                    check=False,
                )
                failed = done.stderr.strip() or f"exit code {done.returncode}"
                if done.returncode == 0:
                    return done.stdout
                away = _AWAY.search(failed) is not None
            except subprocess.TimeoutExpired:
                away, failed = True, f"no answer within {_ANSWER:.0f} s"
            if not away or time.monotonic() >= until:
                said = f"{words[0]} failed: {failed.splitlines()[-1]}"
                raise CannotVerify(said, next_command=f"sinfo  # then {EDIT}, or karat hunt resume")
            if not told:
                self._notice(f"waiting for Slurm: {failed.splitlines()[-1]}")
            told = True
            time.sleep(1.0)


def _between(start: str, end: str) -> float | None:
    try:
        return max(0.0, (dt.datetime.fromisoformat(end) - dt.datetime.fromisoformat(start)).total_seconds())
    except ValueError:  # "N/A"
        return None


class _Flight(Flight):
    result: Path = Path()
    over: float | None = None  # Since when Slurm says that it has ended well, while its result has not arrived.


class SlurmEngine:
    """Runs jobs on a Slurm cluster. Its methods are for one thread."""

    abandoned = False

    def __init__(self, slurm: Slurm, work: Path, wanted: EngineSettings, notice: Callable[[str], None]) -> None:
        self._slurm, self._wanted, self._retries = slurm, wanted.of_each, wanted.retries
        self._notice, self._areas = notice, areas_of(work)
        self.room = ClusterRoom("Slurm", slurm.nodes, wanted.of_each, wanted.slots or _MOST, _FRESH)
        # Also the name of its jobs, by which whoever comes after a killed driver can cancel them.
        self._session, self._began = f"karat-{secrets.token_hex(4)}", time.time()
        self._folder = work / "slurm" / self._session
        self._held = take(self._folder / "lock")
        self._waiting: list[_Flight] = []
        self._flights: dict[str, _Flight] = {}  # Slurm's number of a job → the job.
        self._sent, self._looked, self._worked, self._told = 0, 0.0, False, ""
        self._seconds: dict[str, float] = {}  # Slurm's number → how long it held its resources.
        self._closed = threading.Event()
        threading.Thread(target=self._beat, daemon=True, name="karat-slurm").start()

    def _beat(self) -> None:
        """Tell the nodes that somebody wants results."""
        number = 0
        while not self._closed.wait(_BEAT if number else 0):
            number += 1
            with contextlib.suppress(OSError):
                write_bytes(self._folder / "alive", str(number).encode(), durable=False)

    @property
    def slots(self) -> int:
        """How many jobs may run at once, as the cluster is now; while it has no room, one may wait for it."""
        return max(1, self.room.slots())

    def cancel_orphans(self) -> None:
        """End jobs of drivers in this work folder that were killed."""
        for folder in sorted(self._folder.parent.iterdir()):
            if folder != self._folder and (held := take(folder / "lock")) is not None:
                self._slurm.cancel(folder.name)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(held)

    def submit(self, job: Job) -> None:
        self._waiting.append(_Flight(job, time.time(), []))

    def _send(self) -> None:
        """Whatever came together and needs the same is one array."""
        while self._waiting:
            needs = self._waiting[0].job.resources
            alike = [flight for flight in self._waiting if flight.job.resources == needs]
            self._waiting = [flight for flight in self._waiting if flight.job.resources != needs]
            self._sent += 1
            folder = self._folder / str(self._sent)
            folder.mkdir()
            passed: list[str] = []
            for index, flight in enumerate(alike):
                flight.result, flight.over = folder / f"{index}.result", None
                write_bytes(folder / f"{index}.job", msgspec.msgpack.encode(flight.job), durable=False)
                passed += [*flight.job.passed, *(name for command in flight.job.commands for name in command.passed)]
            words = [sys.executable, "-I", "-c", _BEGIN, str(Path(karat.__file__).parents[1]), str(folder), self._areas]
            script = f'#!/bin/sh\nexec {shlex.join(words)} "${{SLURM_ARRAY_TASK_ID:-0}}"\n'
            # Slurm stores the environment: no secrets but those that are named, and nothing of a job that karat runs in.
            env = withhold(os.environ, [name for name in passed if name not in EVERYTHING])
            env = {name: value for name, value in env.items() if not name.startswith("SLURM_") or name == "SLURM_CONF"}
            name, many = self._session, len(alike)
            number = self._slurm.submit(script, folder, name=name, count=many, resources=needs, env=env)
            numbers = [f"{number}_{index}" for index in range(many)] if many > 1 else [number]
            self._flights |= dict(zip(numbers, alike, strict=True))

    def wait(self, seconds: float | None = None) -> Sequence[JobResult]:
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            self._send()
            numbers = [number for number, flight in self._flights.items() if flight.result.exists()]
            results: list[JobResult] = []
            for number in numbers:
                flight, self._worked = self._flights.pop(number), True
                result = msgspec.msgpack.decode(flight.result.read_bytes(), type=JobResult)
                self._seconds.setdefault(number, result.seconds)
                results += filter(None, [self._ended(flight, result)])
            now = time.monotonic()
            if not results and self._flights and now - self._looked >= _ASK:
                self._looked = now
                results = self._lost(self._slurm.queue(self._session))
            if results or not (self._flights or self._waiting) or (until is not None and now >= until):
                return results
            time.sleep(_LOOK if until is None else min(_LOOK, until - now))

    def _lost(self, queue: dict[str, QueuedJob]) -> list[JobResult]:
        # Once, that nothing runs, and why.
        reasons = {job.reason for job in queue.values() if job.state == "PENDING"} - {"None", ""}
        waits = not any(job.state in {"RUNNING", "COMPLETING"} for job in queue.values()) and reasons
        said = f"waiting for Slurm to start jobs: {', '.join(sorted(reasons))}" if waits else ""
        if said and said != self._told:
            self._notice(said)
        self._told = said
        self._seconds |= {number: job.seconds for number, job in queue.items() if job.seconds is not None}
        results, now = [], time.monotonic()
        for number, flight in list(self._flights.items()):
            job = queue.get(number, QueuedJob(state="COMPLETED"))  # Slurm forgets what ended some minutes ago
            if not job.is_over or flight.result.exists():
                continue
            flight.over = flight.over or now
            if job.state in {"COMPLETED", "COMPLETING"} and now - flight.over < _ARRIVAL:
                # A client of NFS remembers what was not there, until something changes in the folder.
                flight.result.with_suffix(".look").touch()
                continue
            del self._flights[number]
            log = flight.result.with_suffix(".log")
            lines = log.read_text("utf-8", "replace").strip().splitlines() if log.exists() else []
            lost = f"Slurm job {number} {job.state} on {job.node or 'a node'}{f': {lines[-1][:300]}' if lines else ''}"
            results.append(self._ended(flight, flight.lost(lost)))
        return [result for result in results if result]

    def _ended(self, flight: _Flight, result: JobResult) -> JobResult | None:
        """The result; None if it was lost, and will be sent on its way again."""
        ended = flight.ended(result, self._retries)
        if ended is None:
            self._waiting.append(flight)
        elif ended.lost and not self._worked:
            there = f"{sys.executable} and {self._folder} there, on a disk that all share"
            said = f"the nodes of the Slurm cluster cannot run karat: expected {there}; found: {ended.lost}"
            raise CannotVerify(said, next_command=f"sinfo  # then {EDIT}")
        return ended

    def cancel(self, key: str) -> None:
        self._waiting = [flight for flight in self._waiting if flight.job.key != key]
        for number in [number for number, flight in self._flights.items() if flight.job.key == key]:
            del self._flights[number]
            self._slurm.cancel(self._session, number)

    def close(self) -> None:
        if self._closed.is_set():
            return
        # What cannot be reached now is ended by the silence of the heartbeat.
        self._slurm.patience = _REACH
        try:
            with contextlib.suppress(CannotVerify):
                self._end()
        finally:
            self._closed.set()
            shutil.rmtree(self._folder, ignore_errors=True)
            if self._held is not None:
                os.close(self._held)

    def _end(self) -> None:
        """Cancel what is left, wait until it has ended, and say what all of it cost."""
        if not self._sent:
            return
        self._slurm.cancel(self._session)
        until = time.monotonic() + _ENDING
        while True:
            queue = self._slurm.queue(self._session)
            self._seconds |= {number: job.seconds for number, job in queue.items() if job.seconds is not None}
            busy = any(not job.is_over or job.state == "COMPLETING" for job in queue.values())
            if not busy or time.monotonic() >= until:
                break
            time.sleep(_LOOK)
        accounted = self._slurm.accounted(self._session, self._began)
        held = sum((self._seconds | accounted).values())
        each = {"core": self._wanted.cores, "GPU": self._wanted.gpus}
        spent = " and ".join(f"{held * n:,.0f} {what} seconds" for what, n in each.items() if n)
        said = "as sacct has it" if accounted else "by the times of the queue"
        self._notice(f"Slurm: {count(len(self._seconds), 'job')} held {spent}, {said}")


def open_slurm(wanted: EngineSettings, work: Path, notice: Callable[[str], None]) -> Engine:
    """An engine of the cluster that sbatch knows; jobs that a killed driver left in it are cancelled."""
    for name, value in (("cores", wanted.cores), ("gpus", wanted.gpus), *wanted.resources.items()):
        if value != int(value):
            raise UsageError(f"expected {name} to be a whole number for Slurm; found {value:g}", next_command=EDIT)
    engine = SlurmEngine(Slurm(wanted.options, notice), work.absolute(), wanted, notice)
    try:
        engine.cancel_orphans()
        engine.room.require("sinfo")
    except BaseException:
        engine.close()
        raise
    return engine


class DriverWatch:
    """Whether a job is still wanted: its driver's heartbeat goes on, and Slurm has not asked it to end."""

    def __init__(self, heartbeat: Path, silence: float = _SILENCE) -> None:
        self._heartbeat, self._silence = heartbeat, silence
        self._last, self._changed, self._read = b"", time.monotonic(), 0.0
        self.stopped = False

    def stop(self, *_: object) -> None:
        self.stopped = True

    def __call__(self) -> bool:
        now = time.monotonic()
        if not self.stopped and now - self._read >= self._silence / 12:
            self._read = now
            beat = b""
            with contextlib.suppress(OSError):
                beat = self._heartbeat.read_bytes()
            if beat not in {self._last, b""}:
                self._last, self._changed = beat, now
            self.stopped = now - self._changed >= self._silence
        return self.stopped


def work(folder: str, areas: str, index: str) -> None:
    """What a node runs: one job of a batch; `areas` names the folder whose areas may be used again."""
    batch = Path(folder)
    job = msgspec.msgpack.decode((batch / f"{index}.job").read_bytes(), type=Job)
    watch = DriverWatch(batch.parent / "alive")
    signal.signal(signal.SIGTERM, watch.stop)
    env, usable = os.environ, os.sched_getaffinity(0)
    result = run_in_free_slot(
        job,
        areas,
        watch,
        node=f"{env.get('SLURMD_NODENAME', '')}, Slurm job {env.get('SLURM_JOB_ID', '')}",
        gpus=tuple(filter(None, env.get("CUDA_VISIBLE_DEVICES", "").split(","))) if job.resources.gpus else (),
        cores=tuple(sorted(usable)) if len(usable) < (os.cpu_count() or 1) else (),
    )
    # Names a node, so that one and the same crash would look like several.
    ran = [msgspec.structs.replace(each, output=_OF_SRUN.sub(b"", each.output)) for each in result.ran]
    result = msgspec.structs.replace(result, ran=tuple(ran))
    # Slurm says better than a node that was told to stop why it did.
    if watch.stopped and result.lost:
        sys.exit(1)
    write_bytes(batch / f"{index}.result", msgspec.msgpack.encode(result))
