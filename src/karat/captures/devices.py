"""Devices: where the tensors of a nested value live, in words that mean something on another machine."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

_DEEP = 64


def devices(values: Iterable[Any]) -> tuple[str, ...]:
    """Each device once, accelerators first: `cuda:0 NVIDIA H200`, `cpu`."""
    found = {_name(leaf) for value in values for leaf in _leaves(value)} - {None}
    return tuple(sorted((name for name in found if name), key=lambda name: (name == "cpu", name)))


def _leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    if depth > _DEEP:
        return
    inner: Iterable[Any] = ()
    if isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, list | tuple):
        inner = value
    elif is_dataclass(value) and not isinstance(value, type):
        inner = (getattr(value, field.name) for field in fields(value))
    else:
        yield value
    for part in inner:
        yield from _leaves(part, depth + 1)


def _name(value: Any) -> str | None:
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(value, torch.Tensor):
        return _torch(str(value.device))
    if jax is not None and isinstance(value, jax.Array):
        return ", ".join(sorted(_jax(device) for device in value.devices()))
    return "cpu" if hasattr(value, "__array__") or hasattr(value, "__dlpack__") else None


@cache
def _torch(device: str) -> str:
    if device.startswith("cuda"):
        import torch  # noqa: PLC0415 - it is loaded: a tensor of it was handed in

        return f"{device} {torch.cuda.get_device_name(device)}"
    return device


def _jax(device: Any) -> str:
    if device.platform == "cpu":
        return "cpu"
    return f"{device.platform}:{device.id} {device.device_kind}"
