"""GPUs: which ones this process may use."""

from __future__ import annotations

import os
import re
import subprocess

import msgspec

from karat.findings import CannotVerify

_LISTED = re.compile(r"GPU (\d+): .*\(UUID: (GPU-[0-9a-fA-F-]+)\)")
_LISTING = ("nvidia-smi", "-L")


class Gpu(msgspec.Struct, frozen=True):
    """One GPU."""

    name: str
    """As CUDA_VISIBLE_DEVICES has it."""
    id: str
    """The same for everybody on this machine."""


def visible_gpus() -> tuple[Gpu, ...]:
    """Those that CUDA_VISIBLE_DEVICES names, or all there are; CannotVerify where nobody can say."""
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    listed = _listed(required=said is None)
    if said is None:
        return tuple(Gpu(index, uuid) for index, uuid in listed.items())
    names = [name.strip() for name in said.split(",") if name.strip() and name.strip() != "-1"]
    # One that is named twice is one.
    once: dict[str, Gpu] = {}
    for name in names:
        once.setdefault(_id(name, listed), Gpu(name, _id(name, listed)))
    return tuple(once.values())


def _id(name: str, listed: dict[str, str]) -> str:
    """A GPU may be named by its number, by its id, or by the beginning of that."""
    if name in listed:
        return listed[name]
    return next((uuid for uuid in listed.values() if uuid.startswith(name)), name)


def _listed(*, required: bool) -> dict[str, str]:
    try:
        done = subprocess.run(
            _LISTING, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        if not required:
            return {}
        raise CannotVerify(
            "expected `nvidia-smi -L` to list the GPUs of this machine, since each probe is to have some for itself, "
            f"found: {getattr(error, 'strerror', None) or error}",
            next_command="export CUDA_VISIBLE_DEVICES=0  # or gpus = 0 under [engine]",
        ) from error
    return dict(_LISTED.findall(done.stdout.decode("utf-8", "replace")))
