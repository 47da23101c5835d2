"""The environment of a capture: platform, device, versions, image, commit and CI run; never a secret."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import karat
from karat.bundles.manifest import Environment
from karat.captures.ci import commit_of, image_of, run_of
from karat.captures.devices import devices
from karat.findings import CannotVerify, UsageError

PACKAGES = (
    "executorch",
    "jax",
    "jaxlib",
    "ml_dtypes",
    "numpy",
    "onnxruntime",
    "paddle",
    "safetensors",
    "tensorflow",
    "torch",
    "torchao",
    "torchvision",
    "transformers",
    "triton",
)
"""Those that decide over numbers; named in a manifest if the process has them loaded."""


def environment(root: Path, values: Iterable[Any] = ()) -> Environment:
    """Where a case is captured; the device is that of the tensors in `values`."""
    return msgspec.structs.replace(
        _machine(root), device=", ".join(devices(values)) or "cpu", packages=_packages()
    )


def created() -> str:
    """Now in UTC, to the second, or what SOURCE_DATE_EPOCH says."""
    told = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        moment = datetime.fromtimestamp(int(told), UTC) if told else datetime.now(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"SOURCE_DATE_EPOCH: expected seconds since 1970, found {told!r}",
            next_command="unset SOURCE_DATE_EPOCH",
        ) from error
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@cache
def _machine(root: Path) -> Environment:
    """What does not change while a process runs; git is asked once."""
    commit, dirty = _git(root)
    return Environment(
        platform=f"{platform.system()} {platform.release()}".strip(),
        machine=platform.machine(),
        python=platform.python_version(),
        image=image_of(),
        commit=commit or commit_of(),
        dirty=dirty,
        ci=run_of(),
    )


def _git(root: Path) -> tuple[str | None, bool | None]:
    from karat.goldens.git import root_and_head, run_git  # noqa: PLC0415 - only who captures asks

    try:
        top, commit = root_and_head(root)
        changed = run_git(top, "status", "--porcelain", "--untracked-files=no")
    except CannotVerify:  # no git, no repository, or not ours to read: CI may know the commit
        return None, None
    return commit, bool(changed.strip())


def _packages() -> dict[str, str]:
    return {"karat": karat.__version__, **dict(_loaded())}


def _loaded() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        if name in sys.modules:
            version = getattr(sys.modules[name], "__version__", None) or _installed(name)
            if version:
                yield name, str(version)


@cache
def _installed(name: str) -> str | None:
    from importlib import metadata  # noqa: PLC0415 - slow, and most packages tell themselves

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
