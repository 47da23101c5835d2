"""Opening the Ray engine: finding the cluster, which is never started here, and sending karat along."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import karat
from karat.engines.engine import Engine
from karat.engines.job import Resources
from karat.engines.ray_silence import Silence
from karat.findings import CannotVerify, UsageError

_REACH = 10.0
_NEXT = "export RAY_ADDRESS=HOST:6379  # then: ray status"


def open_ray(
    address: str,
    *,
    work: Path,
    resources: Resources,
    retries: int,
    most: int,
    notice: Callable[[str], None] | None = None,
) -> Engine:
    """An engine of the cluster at that address, at RAY_ADDRESS, or of the one that runs on this machine."""
    ray = _ray()
    from karat.engines.ray_engine import RayEngine  # noqa: PLC0415 - after the message that ray is missing

    silence = Silence()
    try:
        _connect(ray, address or os.environ.get("RAY_ADDRESS") or "auto")
    except BaseException:
        silence.end()
        raise
    engine = RayEngine(
        ray,
        silence=silence,
        hunt=_name(work),
        resources=resources,
        retries=retries,
        most=most,
        notice=notice or _say,
    )
    try:
        engine.require_room()
    except BaseException:
        engine.close()
        raise
    return engine


def _ray() -> Any:
    try:
        import ray  # noqa: PLC0415 - it takes seconds
    except ImportError as error:
        raise UsageError(
            'expected Ray to be installed for engine = "ray", found none',
            next_command="pip install 'karat[ray]'",
        ) from error
    return ray


def _connect(ray: Any, address: str) -> None:
    if address == "local":
        raise UsageError(
            'expected the address of a Ray cluster that runs, found "local", which would start one',
            next_command="karat hunt --engine local",
        )
    _require_reachable(address)
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level="ERROR",
            # The nodes run this very karat, whichever they have.
            runtime_env={
                "py_modules": [str(Path(karat.__file__).parent)],
                "excludes": ["__pycache__"],
            },
        )
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise CannotVerify(
            f"expected a Ray cluster at {address} that lets karat in, found: {_first_line(error)}. "
            "RAY_AUTH_MODE and RAY_AUTH_TOKEN_PATH must be as on its nodes, and so must the version of Ray",
            next_command=_NEXT,
        ) from error


def _require_reachable(address: str) -> None:
    """Ray waits long for a cluster that is not there, and may end the whole process then."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH).close()
    except OSError as error:
        raise CannotVerify(
            f"expected a Ray cluster at {address}, found nobody there: {error.strerror or error}",
            next_command=_NEXT,
        ) from error


def _name(work: Path) -> str:
    """The same for every run of a hunt, so that clones and builds on the nodes are found again."""
    text = f"{socket.gethostname()}:{work.absolute()}"
    return f"hunt-{hashlib.sha256(os.fsencode(text)).hexdigest()[:12]}"


def _say(message: str) -> None:
    print(f"karat: {message}", file=sys.stderr, flush=True)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
