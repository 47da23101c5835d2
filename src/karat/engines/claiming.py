"""Claiming slots of this machine: areas, cores and GPUs that nobody else uses, also no other hunt."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from karat.engines.gpus import Gpu, visible_gpus
from karat.engines.locks import take, users_folder
from karat.engines.slots import Slot
from karat.findings import UsageError

_LOOK_AGAIN = 1.0
_EDIT = "edit [engine] in hunt.toml"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """How many slots, and what each is to have."""

    slots: int
    cores: int
    gpus: int


class Taken(Exception):  # noqa: N818 - what became of it
    """Somebody else has too many of them."""


class Claim:
    """Slots that this process has for itself until it lets go of them, or dies."""

    def __init__(self, wanted: Wanted, work: Path) -> None:
        """All of them or none: whoever waits for the rest must not keep what another waits for."""
        self._handles: list[int] = []
        try:
            cores = self._grouped(_cores(wanted), wanted.slots, wanted.cores)
            gpus = self._grouped(_gpus(wanted), wanted.slots, wanted.gpus)
            self.slots = tuple(
                self._slot(work, cores[index], gpus[index]) for index in range(wanted.slots)
            )
        except BaseException:
            self.release()
            raise

    def _grouped(
        self, locks: Mapping[str, Path], slots: int, each: int
    ) -> list[list[tuple[str, int]]]:
        """Names with the handles of their locks, `each` for every slot."""
        found: list[tuple[str, int]] = []
        for name, path in locks.items():
            if len(found) < slots * each and (handle := take(path)) is not None:
                self._handles.append(handle)
                found.append((name, handle))
        if len(found) < slots * each:
            raise Taken
        return [found[index * each : (index + 1) * each] for index in range(slots)]

    def _slot(self, work: Path, cores: list[tuple[str, int]], gpus: list[tuple[str, int]]) -> Slot:
        number = 0
        # Another area costs a folder, so there is always a free one.
        while (handle := take(work / f"slot-{number}.lock")) is None:
            number += 1
        self._handles.append(handle)
        return Slot(
            number=number,
            area=work / f"slot-{number}",
            cores=tuple(int(name) for name, _ in cores),
            gpus=tuple(name for name, _ in gpus),
            held=(handle, *(lock for _, lock in (*cores, *gpus))),
        )

    def release(self) -> None:
        """Others may have them; what a warden still holds stays held until it has ended."""
        while self._handles:
            os.close(self._handles.pop())


def claim(wanted: Wanted, work: Path, notice: Callable[[str], None] | None = None) -> Claim:
    """Slots, as soon as all of them can be had; who has to wait is told so."""
    say, said = notice or _say, False
    while True:
        try:
            return Claim(wanted, work)
        except Taken:
            if not said:
                say(f"waiting for {_needs(wanted)}: another hunt on this machine has them")
                said = True
            time.sleep(_LOOK_AGAIN)


def _say(message: str) -> None:
    print(f"karat: {message}", file=sys.stderr, flush=True)


def _needs(wanted: Wanted) -> str:
    each = {"cores": wanted.cores, "GPUs": wanted.gpus}
    many = {what: wanted.slots * number for what, number in each.items() if number}
    return " and ".join(f"{n} {what if n > 1 else what[:-1]}" for what, n in many.items())


def _cores(wanted: Wanted) -> dict[str, Path]:
    if not wanted.cores:
        return {}
    if not hasattr(os, "sched_getaffinity"):
        raise UsageError(
            "expected a system that pins processes to cores (Linux), found another; cores = 0 does without",
            next_command=_EDIT,
        )
    there = sorted(os.sched_getaffinity(0))
    _enough("cores", wanted.slots, wanted.cores, len(there))
    return {str(core): users_folder() / f"core-{core}.lock" for core in there}


def _gpus(wanted: Wanted) -> dict[str, Path]:
    if not wanted.gpus:
        return {}
    there: tuple[Gpu, ...] = visible_gpus()
    _enough("GPUs", wanted.slots, wanted.gpus, len(there))
    return {gpu.name: users_folder() / f"{_file_name(gpu.id)}.lock" for gpu in there}


def _file_name(text: str) -> str:
    safe = "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in text)
    return f"gpu-{safe}"


def _enough(what: str, slots: int, each: int, there: int) -> None:
    if slots * each > there:
        raise UsageError(
            f"expected no more {what} to be asked for than this process may use, which is {there}; "
            f"found {slots} slots with {each} each, which makes {slots * each}",
            next_command=_EDIT,
        )
