"""Devices: where the tensors of a nested value live, in words that mean something on another machine."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any


def devices(values: Iterable[Any]) -> tuple[str, ...]:
    """Each device once, accelerators first: `cuda:0 NVIDIA H200`, `cpu`."""
    found = {_name(leaf) for leaf in _leaves(values)} - {None}
    return tuple(sorted((name for name in found if name), key=lambda name: (name == "cpu", name)))


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    """Each value once: what holds itself, or one thing in many places, would have no end.

    Values are kept, and not only their ids, because the id of one that is gone is soon another's.
    """
    known: dict[int, Any] = {}
    left = list(values)
    while left:
        value = left.pop()
        if id(value) not in known:
            known[id(value)] = value
            inner = _inner(value)
            if inner is None:
                yield value
            else:
                left.extend(inner)


def _inner(value: Any) -> Iterable[Any] | None:
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, list | tuple):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in fields(value)]
    return None


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
