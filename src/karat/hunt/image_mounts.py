"""Mounts: folders of this machine that a container sees."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from karat.findings import UsageError

_MOUNT = re.compile(r"(?P<host>[^:]+):(?P<inside>/[^:]*)(?P<options>:[A-Za-z,]+)?")


def mount_options(mounts: Iterable[str], root: Path) -> tuple[str, ...]:
    """Options for `run`: HOST is seen from a folder, and must be there."""
    return tuple(word for mount in mounts for word in ("--volume", absolute(mount, root)))


def absolute(mount: str, root: Path) -> str:
    """`HOST:CONTAINER[:ro]` with an absolute HOST."""
    found = _MOUNT.fullmatch(mount)
    if not found:
        raise _wrong(f"expected HOST:CONTAINER or HOST:CONTAINER:ro, found {mount!r}")
    host = (root / Path(found["host"]).expanduser()).resolve()
    if not host.exists():
        # docker would make an empty folder of it, and the probe would find nothing there.
        raise _wrong(
            f"expected {mount!r} to name a folder or file that is there, found none at {host}"
        )
    return f"{mountable(host)}:{found['inside']}{found['options'] or ''}"


def mountable(host: Path) -> Path:
    """A path of this machine that an engine can mount: in its words a colon ends a path."""
    if ":" in str(host):
        raise UsageError(
            f"expected a path without a colon, since container engines cannot mount others, found {host}; "
            "the key work of hunt.toml may name another folder to work in",
            next_command="edit hunt.toml",
        )
    return host


def _wrong(message: str) -> UsageError:
    return UsageError(f"containers.mounts: {message}", next_command="edit hunt.toml")
