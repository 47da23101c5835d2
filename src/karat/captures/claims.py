"""Claims: one file per identity and session, so that no second capture of it goes unnoticed.

`DIR/.karat/SESSION/claims/HASH.json`, made only if it is not there: it holds between xdist workers and between shards
that share the directory and the session. A claim of a test that did not pass is withdrawn; that of a
capture that failed stays and says so, and the next capture may take it over, as it may one whose process
died.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from karat.bundles.manifest import Identity

SCHEMA = "karat.claim/1"


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Who captures an identity in a session, and how far that is."""

    schema: str = SCHEMA
    identity: Identity
    path: str
    """Of the case's folder, below the capture directory."""
    state: Literal["staged", "published", "failed"] = "staged"
    """`published`: the case must be there. `failed`: its test passed, and it was not written."""
    by: str
    """The test, and the worker it ran in."""
    host: str
    pid: int
    run: str = ""
    """The pytest session, or the process, among those of a capture session."""


class Taken(Exception):  # noqa: N818 - a state of the claim
    """Somebody else has it; `claim` is None where it is just being written."""

    def __init__(self, claim: Claim | None) -> None:
        super().__init__()
        self.claim = claim


@cache
def host() -> str:
    """A name for the space that process ids of this machine are unique in.

    Containers may share a machine's name but not its processes, and machines may be named alike.
    """
    marks = [socket.gethostname()]
    with contextlib.suppress(OSError):  # Linux alone has both
        marks.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        marks.append(str(Path("/proc/self/ns/pid").readlink()))
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", marks[0])[:40]
    return f"{name}-{sha256(repr(marks).encode()).hexdigest()[:8]}"


def claim_path(claims: Path, path: str) -> Path:
    """Where the claim of a case lies; its own path is made of the whole identity."""
    return claims / f"{sha256(path.encode()).hexdigest()[:40]}.json"


def take(path: Path, claim: Claim) -> None:
    """Makes the claim, or raises `Taken`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _create(path, claim)
    except FileExistsError:
        standing = read(path)
        if standing is None or not _is_void(standing) or not _withdraw_exactly(path, standing):
            raise Taken(standing) from None
        try:
            _create(path, claim)
        except FileExistsError:
            raise Taken(read(path)) from None


def update(path: Path, claim: Claim) -> None:
    """Says how far it is; readers see the old words or the new ones."""
    scratch = path.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_bytes(msgspec.json.encode(claim))
    scratch.replace(path)


def withdraw(path: Path) -> None:
    """The test did not pass, so nothing was captured; the identity is free again."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def read(path: Path) -> Claim | None:
    """The claim as it stands; None if it is gone, or just being written."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Claim)
    except (OSError, msgspec.DecodeError):
        return None


def _create(path: Path, claim: Claim) -> None:
    """Whole or not there, also for who reads it meanwhile, and after a kill."""
    scratch = path.with_suffix(f".{os.urandom(6).hex()}.tmp")
    try:
        scratch.write_bytes(msgspec.json.encode(claim))
        try:
            os.link(scratch, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            with path.open("xb") as file:
                file.write(scratch.read_bytes())
    finally:
        scratch.unlink(missing_ok=True)


def _is_void(claim: Claim) -> bool:
    """It failed, or its process died before its test ended."""
    if claim.state == "failed":
        return True
    return claim.state == "staged" and claim.host == host() and not is_alive(claim.pid)


def is_alive(pid: int) -> bool:
    """Whether a process of this machine still runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's, but there
        return True
    return True


def _withdraw_exactly(path: Path, claim: Claim) -> bool:
    """Takes away this very claim; False if another capture was quicker."""
    aside = path.with_suffix(f".{os.urandom(6).hex()}.void")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return False
    same = read(aside) == claim
    if same:
        aside.unlink()
    else:
        aside.rename(path)
    return same
