"""Jobs: what an engine runs and what comes back; and engines, opened by their name.

In: a `Job`, a list of commands that are run one after the other, in one slot that nobody else uses meanwhile. Out: a
`JobResult`. An engine judges nothing: it does not know what a crash or a metric is.

Words in `argv`, `cwd`, `env` and `unless` that the runner replaces: `@AREA@` the kept folder of the slot, `@OUT@` an empty
folder of this job (inside `@AREA@`, and the same for every job of the slot), `@SLOT@` the number of the slot, `@GPUS@` the
GPUs the slot owns (`0,1`; empty for none), `@CORES@` its cores (`0,1`; empty: not pinned).
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Meta

from karat.findings import CannotVerify, UsageError
from karat.report.terminal import say

EDIT = "edit [engine] in hunt.toml"
Role = Literal["prepare", "build", "identify", "warmup", "measure"]
MOST = 10_000  # Of anything that is counted: more is a slip of the keyboard.
HowMany: TypeAlias = Annotated[int, Meta(ge=0, le=MOST)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=MOST)]


class JobCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    role: Role
    argv: tuple[str, ...]
    name: str = ""
    cwd: str = "@AREA@"
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Beside the runner's own environment, of which secrets are withheld; see `karat.system.secrets`."""
    passed: tuple[str, ...] = ()
    """Secrets of that environment, names or globs, that this very command may see: to log in somewhere for karat."""
    timeout: float | None = None
    unless: tuple[str, ...] = ()  # Not needed if this command succeeds: a clone that is there, a container that runs.
    when_killed: tuple[tuple[str, ...], ...] = ()
    """Run if the command is killed: what a container's client started lives elsewhere."""
    may_fail: bool = False  # Whether the job goes on after it failed.


class Resources(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job has for itself while it runs."""

    cores: float = 1
    gpus: float = 0
    memory: int = 0
    custom: Mapping[str, float] = msgspec.field(default_factory=dict)


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[engine] of hunt.toml."""

    kind: Literal["local", "ray", "slurm"] = "local"
    slots: HowMany = 0
    """How many probes may run at once; 0: one, and as many as a cluster has room for (Slurm: 16 at most)."""
    cores: Share = 0  # Cores per probe, for itself; 0: not divided.
    gpus: Share = 0  # GPUs per probe, for itself.
    memory: str = ""
    address: str = ""  # Ray's; by default RAY_ADDRESS.
    resources: Mapping[str, Share] = msgspec.field(default_factory=dict)
    """Per probe: custom resources of Ray, generic ones (GRES) of Slurm."""
    options: tuple[str, ...] = ()  # Slurm: more words for sbatch, such as --partition=gpu.
    retries: HowMany = 3  # How often a point is tried elsewhere after its worker was lost.

    @property
    def of_each(self) -> Resources:
        """What each job has for itself. One core where nobody said how many: none at all would mean no limit."""
        return Resources(self.cores or 1, self.gpus, parse_size(self.memory), self.resources)


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Commands that are run one after the other in one slot."""

    key: str
    commands: tuple[JobCommand, ...]
    resources: Resources = Resources()
    collect: tuple[str, ...] = ()
    """Globs, seen from @OUT@ and then from the last command's folder: files that come back."""
    hash_files: tuple[str, ...] = ()
    """Globs, seen from @AREA@ (or absolute): built files whose hash is part of the identity."""
    known: tuple[str, ...] = ()  # Identities that have been measured: what follows `identify` is left out for them.
    identity: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What is known of the point without running anything: image digest, commit ids."""
    beside: str = ""  # Jobs that say the same run in one slot, one after the other, where an engine can choose: here.
    passed: tuple[str, ...] = ()  # Secrets of the runner's environment that every command may see.


class CommandEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a command that was run, or was not needed, ended."""

    role: Role
    name: str = ""
    exit_code: int | None = None  # None: killed, or not run.
    signal: int | None = None
    timed_out: bool = False
    skipped: bool = False
    seconds: float = 0.0  # From just before its process was started to its end.
    error: str = ""  # Why it could not be started.


class Ran(CommandEnd, frozen=True, kw_only=True, omit_defaults=True):
    output: bytes = b""
    """stdout and stderr together; of a long one the first and the last part, with a line that says what was left out."""


class JobResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    key: str
    ran: tuple[Ran, ...] = ()
    started: float  # Seconds since 1970.
    seconds: float = 0.0
    where: str = ""  # Host, slot and devices, for a person.
    files: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    hashes: Mapping[str, str] = msgspec.field(default_factory=dict)  # Built file → sha256.
    identity: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The job's, and what `identify` and the hashes added."""
    identity_key: str = ""  # One digest of the identity.
    shared: bool = False  # Whether measuring was left out because this identity is known.
    lost: str = ""  # Why nothing came back: the worker died, the node is gone. Nothing is known of the point then.
    notes: tuple[str, ...] = ()
    """Sentences: a file that was too large to come back, a worker that was lost before this one."""


def node_needs(resources: Resources) -> dict[str, float]:
    """The same, by the names that nodes have for it."""
    wanted = {"CPU": resources.cores, "GPU": resources.gpus, "memory": resources.memory, **resources.custom}
    return {name: amount for name, amount in wanted.items() if amount > 0}


def jobs_per_node(there: Mapping[str, float], wanted: Mapping[str, float]) -> int:
    # Fractions such as 0.1 are not what they seem; a job too many would wait, one too few is never run.
    return min(int(there.get(name, 0.0) / amount + 1e-6) for name, amount in wanted.items())


def resources_shown(resources: Mapping[str, float]) -> str:
    said = (f"{n / 1e9:.3g} GB of memory" if name == "memory" else f"{n:g} {name}" for name, n in resources.items())
    return ", ".join(said)


class ClusterRoom:
    """How many jobs a cluster can run at once; its nodes are asked for anew as time passes."""

    def __init__(
        self,
        cluster: str,
        nodes: Callable[[], Sequence[Mapping[str, float]]],
        wanted: Resources,
        most: int,
        fresh: float,
    ) -> None:
        """`nodes` says what each node has, and stays true for `fresh` seconds; `most` jobs may run, 0: as many as fit."""
        self._cluster, self._nodes, self._needs = cluster, nodes, node_needs(wanted)
        self._most, self._fresh, self.needs = most, fresh, resources_shown(self._needs)
        self._read_at, self._known = -fresh, 0

    def slots(self) -> int:
        if time.monotonic() - self._read_at >= self._fresh:
            self._known = sum(jobs_per_node(node, self._needs) for node in self._nodes())
            self._read_at = time.monotonic()
        return min(self._known, self._most) if self._most else self._known

    def require(self, look: str) -> None:
        """CannotVerify where no node could ever run a job; `look` is what to do about it."""
        if self.slots() == 0:
            there = "; ".join(dict.fromkeys(map(resources_shown, self._nodes()))) or "no node that is up"
            said = f"expected a node of the {self._cluster} cluster with {self.needs} for each probe, found {there}"
            raise CannotVerify(said, next_command=look)


class Flight(msgspec.Struct):
    """A job that is under way on a cluster, and what became of earlier tries."""

    job: Job
    started: float
    losses: list[str]

    def ended(self, result: JobResult, retries: int) -> JobResult | None:
        """The result, with what was lost before; None if it is lost itself, and is to be tried again."""
        if result.lost:
            self.losses.append(f"{result.lost} ({result.where})" if result.where else result.lost)
            if len(self.losses) <= retries:
                return None
        losses = [f"lost and tried again: {loss}" for loss in self.losses]
        return msgspec.structs.replace(result, notes=(*result.notes, *losses))

    def lost(self, why: str) -> JobResult:
        return JobResult(key=self.job.key, started=self.started, seconds=time.time() - self.started, lost=why)


class Engine(Protocol):
    """Takes jobs, and returns results in the order in which they end. Jobs without a result yet are in flight."""

    @property
    def slots(self) -> int:
        """How many jobs may run at once."""

    @property
    def abandoned(self) -> bool:
        """Whether what it ran on was lost, so that a clean shutdown cannot be waited for."""

    def submit(self, job: Job) -> None:
        """Start a job as soon as a slot is free; returns at once."""

    def wait(self, seconds: float | None = None) -> Sequence[JobResult]:
        """Results that have come, at least one unless `seconds` passed or nothing is in flight."""

    def cancel(self, key: str) -> None:
        """Stop a job with all it started; no result comes of it."""

    def close(self) -> None:
        """Stop everything that is in flight, whole process trees, and release what was held."""


def print_notice(message: str) -> None:
    say(f"karat: {message}", sys.stderr)


def open_engine(wanted: EngineSettings, work: Path, notice: Callable[[str], None] = print_notice) -> Engine:
    """The engine that is wanted, ready for jobs; waits, with a notice, while another hunt has what it needs."""
    if wanted.kind == "ray":
        from karat.engines.ray_engine import open_ray

        return open_ray(wanted, work, notice)
    if wanted.kind == "slurm":
        from karat.engines.slurm_engine import open_slurm

        return open_slurm(wanted, work, notice)
    from karat.engines.local import LocalEngine, claim_slots

    for name, value in (("cores", wanted.cores), ("gpus", wanted.gpus)):
        if value != int(value):
            whole = "a whole number for the local engine, where each probe has them for itself"
            raise UsageError(f"expected {name} to be {whole}; found {value:g}", next_command=EDIT)
    return LocalEngine(claim_slots(wanted, work.absolute(), notice))


_SIZE_UNITS = {"": 1, "B": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("KMGT", 1)
    for ending, base in (("B", 1000), ("IB", 1024))
}


def parse_size(text: str) -> int:
    if not text.strip():
        return 0
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    unit = _SIZE_UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None or len(found[1]) > 18:
        said = f"expected a size such as '50 GB' or '512 MiB', found {text!r}"
        raise UsageError(said, next_command="edit hunt.toml")
    return int(float(found[1]) * unit)
