"""Open an engine by its name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from karat.engines.job import Engine, Resources
from karat.findings import UsageError

EDIT = "edit [engine] in hunt.toml"


def print_notice(message: str) -> None:
    print(f"karat: {message}", file=sys.stderr, flush=True)


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
                said = (
                    f"expected {name} to be a whole number for the local engine, where each probe has them for itself; "
                )
                raise UsageError(f"{said}found {value:g}", next_command=EDIT)
        wanted = SlotRequest(slots=slots or 1, cores=int(cores), gpus=int(gpus))
        return LocalEngine(claim_slots(wanted, work.absolute(), notice))
    if kind == "ray":
        from karat.engines.ray_engine import open_ray

        resources = Resources(cores=cores, gpus=gpus, memory=memory, custom=custom or {})
        return open_ray(address, work=work, resources=resources, retries=retries, most=slots, notice=notice)
    raise UsageError(f"expected the engine local or ray, found {kind!r}", next_command=EDIT)
