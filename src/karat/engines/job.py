"""Jobs: what an engine runs and what comes back; and engines, opened by their name.

In: a `Job`, a list of commands that are run one after the other, in one slot that nobody else uses meanwhile. Out: a
`JobResult`. An engine judges nothing: it does not know what a crash or a metric is.

Words in `argv`, `cwd`, `env` and `unless` that the runner replaces: `@AREA@` the kept folder of the slot, `@OUT@` an empty
folder of this job (inside `@AREA@`, and the same for every job of the slot), `@SLOT@` the number of the slot, `@GPUS@` the
GPUs the slot owns (`0,1`; empty for none), `@CORES@` its cores (`0,1`; empty: not pinned).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from karat.findings import UsageError
from karat.report.terminal import say

EDIT = "edit [engine] in hunt.toml"
Role = Literal["prepare", "build", "identify", "warmup", "measure"]


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


class Resources(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job has for itself while it runs."""

    cores: float = 1
    gpus: float = 0
    memory: int = 0
    custom: Mapping[str, float] = msgspec.field(default_factory=dict)


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
    passed: tuple[str, ...] = ()  # Secrets of the runner's environment that every command may see.
    withheld: tuple[str, ...] = ()  # Variables that are secrets although their names do not say so.


class Ran(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One command that was run, or was not needed."""

    role: Role
    name: str = ""
    exit_code: int | None = None  # None: killed, or not run.
    signal: int | None = None
    timed_out: bool = False
    skipped: bool = False
    seconds: float = 0.0  # From just before its process was started to its end.
    output: bytes = b""
    """stdout and stderr together; of a long one the first and the last part, with a line that says what was left out."""
    error: str = ""  # Why it could not be started.


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
    def name(self) -> str:
        """`local`, `ray` or `slurm`."""

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


def open_engine(  # noqa: PLR0913 - what [engine] may say
    kind: str,
    *,
    slots: int,
    work: Path,
    cores: float = 0,
    gpus: float = 0,
    address: str = "",
    retries: int = 3,
    memory: int = 0,
    custom: Mapping[str, float] | None = None,
    options: Sequence[str] = (),
    notice: Callable[[str], None] = print_notice,
) -> Engine:
    """The engine of that kind, ready for jobs; waits, with a notice, while another hunt has what it needs.

    `slots` is how many jobs may run at once; 0: one here, and on a cluster as many as it has room for.
    """
    if slots < 0:
        raise UsageError(f"expected no negative number of slots, found {slots}", next_command=EDIT)
    if kind == "local":
        from karat.engines.local import LocalEngine, SlotRequest, claim_slots

        for name, value in (("cores", cores), ("gpus", gpus)):
            if value < 0 or value != int(value):
                whole = "a whole number for the local engine, where each probe has them for itself"
                raise UsageError(f"expected {name} to be {whole}; found {value:g}", next_command=EDIT)
        wanted = SlotRequest(slots=slots or 1, cores=int(cores), gpus=int(gpus))
        return LocalEngine(claim_slots(wanted, work.absolute(), notice))
    resources = Resources(cores=cores, gpus=gpus, memory=memory, custom=custom or {})
    if kind == "ray":
        from karat.engines.ray_engine import open_ray

        return open_ray(address, work=work, resources=resources, retries=retries, most=slots, notice=notice)
    if kind == "slurm":
        from karat.engines.slurm_engine import open_slurm

        return open_slurm(options, work=work, resources=resources, retries=retries, most=slots, notice=notice)
    raise UsageError(f"expected the engine local, ray or slurm, found {kind!r}", next_command=EDIT)
