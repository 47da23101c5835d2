"""Where a case is captured: platform, device, versions, image, commit and CI run, and its seeds; never a secret."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import karat
from karat.bundles.manifest import Environment
from karat.findings import CannotVerify
from karat.system.ci import commit_of, image_of, run_of
from karat.system.dates import build_time

# fmt: off
PACKAGES = (
    "executorch", "jax", "jaxlib", "ml_dtypes", "numpy", "onnxruntime", "paddle", "safetensors", "tensorflow",
    "torch", "torchao", "torchvision", "transformers", "triton",
)
"""Those that influence numbers; a manifest names the ones that are loaded."""
# fmt: on


def environment(root: Path, values: Iterable[Any] = ()) -> Environment:
    """Where a case is captured; the device is that of the tensors in `values`."""
    packages = {"karat": karat.__version__}
    for name in PACKAGES:
        if name in sys.modules:
            version = getattr(sys.modules[name], "__version__", None) or _installed(name)
            if version:
                packages[name] = str(version)
    return msgspec.structs.replace(_machine(root), device=", ".join(devices(values)) or "cpu", packages=packages)


def created() -> str:
    """When it is captured, to the second."""
    return f"{build_time():%Y-%m-%dT%H:%M:%SZ}"


@cache
def _machine(root: Path) -> Environment:
    """What does not change while a process runs; git is asked once."""
    from karat.system.git import root_and_head, run_git

    commit = dirty = None
    with suppress(CannotVerify):  # no git, no repository, or not ours to read: CI may know the commit
        top, head = root_and_head(root)
        changed = run_git(top, "status", "--porcelain", "--untracked-files=no")
        commit, dirty = head, bool(changed.strip())
    return Environment(
        platform=f"{platform.system()} {platform.release()}".strip(),
        machine=platform.machine(),
        python=platform.python_version(),
        image=image_of(),
        commit=commit or commit_of(),
        dirty=dirty,
        ci=run_of(),
    )


@cache
def _installed(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def devices(values: Iterable[Any]) -> tuple[str, ...]:
    """Each device once, accelerators first: `cuda:0 NVIDIA H200`, `cpu`."""
    # Each value once, so that one that holds itself comes to an end. Values are kept, and not only their ids, because
    # the id of one that is gone is soon another's.
    known: dict[int, Any] = {}
    names, left = set(), list(values)
    while left:
        value = left.pop()
        if id(value) in known:
            continue
        known[id(value)] = value
        if isinstance(value, Mapping):
            left.extend(value.values())
        elif isinstance(value, list | tuple):
            left.extend(value)
        elif is_dataclass(value) and not isinstance(value, type):
            left.extend(getattr(value, field.name, None) for field in fields(value))
        elif name := _device(value):
            names.add(name)
    return tuple(sorted(names, key=lambda name: (name == "cpu", name)))


def _device(value: Any) -> str | None:
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(value, torch.Tensor):
        return _torch_device(str(value.device))
    if jax is not None and isinstance(value, jax.Array):
        names = ("cpu" if d.platform == "cpu" else f"{d.platform}:{d.id} {d.device_kind}" for d in value.devices())
        return ", ".join(sorted(names))
    return "cpu" if hasattr(value, "__array__") or hasattr(value, "__dlpack__") else None


@cache
def _torch_device(device: str) -> str:
    if device.startswith("cuda"):
        import torch

        return f"{device} {torch.cuda.get_device_name(device)}"
    return device


def seeds(given: Mapping[str, int | str] | None = None) -> dict[str, int | str]:
    """The initial seed of torch if that is loaded, PYTHONHASHSEED if set, and what the test says.

    numpy and jax have no seed to ask for: a generator does not remember it, a key is a value.
    """
    found: dict[str, int | str] = {}
    initial = getattr(sys.modules.get("torch"), "initial_seed", None)
    if initial is not None:
        found["torch"] = int(initial())
    if os.environ.get("PYTHONHASHSEED"):
        found["PYTHONHASHSEED"] = os.environ["PYTHONHASHSEED"]
    return dict(sorted((found | dict(given or {})).items()))
