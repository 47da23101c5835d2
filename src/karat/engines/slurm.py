"""Slurm through its own commands: what there is room for, what was submitted, what became of it, and what it cost."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from karat.engines.job import EDIT, Resources
from karat.engines.ray_cluster import jobs_per_node, node_needs
from karat.findings import CannotVerify, UsageError

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

    def nodes(self) -> dict[str, dict[str, float]]:
        """Nodes that take jobs → what each has."""
        found: dict[str, dict[str, float]] = {}
        for line in self._ask(["sinfo", "--noheader", "--Node", *self._where, "--format=%N|%t|%c|%m|%G"]).splitlines():
            name, state, cores, memory, gres = line.split("|")
            if state.rstrip(_POWER) in _UP:
                more: dict[str, float] = {}
                for kind, number in _GRES.findall(gres):
                    called = "GPU" if kind == "gpu" else kind
                    more[called] = more.get(called, 0) + int(number)
                found[name] = {"CPU": float(cores), "memory": float(memory.rstrip("+")) * 2**20, **more}
        return found

    def room(self, resources: Resources) -> int:
        """How many jobs its nodes can run at once, if nobody else has any."""
        return sum(jobs_per_node(node, node_needs(resources)) for node in self.nodes().values())

    def submit(
        self, script: str, folder: Path, *, name: str, count: int, resources: Resources, env: Mapping[str, str]
    ) -> str:
        """Submit a script, `count` times as an array; its number."""
        gres = {"gpu": resources.gpus, **resources.custom}
        wanted = ",".join(f"{kind}:{number:g}" for kind, number in gres.items() if number)
        words = [
            *("sbatch", "--parsable", "--no-requeue", f"--job-name={name}", f"--chdir={folder}", "--input=none"),
            *("--ntasks=1", f"--cpus-per-task={resources.cores or 1:g}"),
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
            done = subprocess.run(
                [*words, "--format=JobID,ElapsedRaw"], capture_output=True, text=True, timeout=_ANSWER, check=True
            )
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
