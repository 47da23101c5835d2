"""Slots: where one job runs at a time, with a folder, cores and GPUs of its own."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """Where one job runs at a time."""

    number: int
    area: Path
    """The kept folder."""
    cores: tuple[int, ...] = ()
    """Cores that nobody else uses; empty: not pinned."""
    gpus: tuple[str, ...] = ()
    """GPUs that nobody else uses, as CUDA_VISIBLE_DEVICES names them."""
    held: tuple[int, ...] = ()
    """Descriptors of locks: the warden keeps them, so that they last as long as the last process of a job."""
    node: str = ""
    """Of a cluster: which node."""
    env: Mapping[str, str] | None = None
    """The environment commands run in; None: the runner's own."""

    @property
    def where(self) -> str:
        """Host, slot and devices, for a person."""
        parts = [f"{socket.gethostname()} slot {self.number}"]
        if self.node:
            parts.append(f"node {self.node}")
        if self.cores:
            parts.append(f"cores {','.join(map(str, self.cores))}")
        if self.gpus:
            parts.append(f"GPUs {','.join(self.gpus)}")
        return ", ".join(parts)
