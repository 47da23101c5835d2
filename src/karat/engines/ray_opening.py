"""Opening the Ray engine: finding the cluster, which is never started here, and sending karat along."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import karat
from karat.engines.engine import Engine
from karat.engines.job import Resources
from karat.engines.ray_head import Head
from karat.engines.ray_silence import Silence
from karat.findings import CannotVerify, UsageError

_REACH = 10.0
_ADDRESS = re.compile(r"(ray://)?([^/@\s]+):(\d{1,5})")
# As HTTP/2 begins, which gRPC speaks: who does not answer with settings of its own is no cluster.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4


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
        _connect(ray, address or os.environ.get("RAY_ADDRESS") or "auto", _next(address))
    except BaseException:
        silence.end()
        raise
    engine = RayEngine(
        ray,
        silence=silence,
        # A client has a server to talk to, and hears from it.
        head=Head(
            "" if ray.util.client.ray.is_connected() else ray.get_runtime_context().gcs_address
        ),
        hunt=_name(work),
        resources=resources,
        retries=retries,
        most=most,
        notice=notice or _say,
    )
    try:
        engine.require_room(resources)
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


def _next(address: str) -> str:
    """What to do about the address: hunt.toml's goes before RAY_ADDRESS."""
    where = "edit [engine] address in hunt.toml" if address else "export RAY_ADDRESS=HOST:6379"
    return f"{where}  # then: ray status"


def _connect(ray: Any, address: str, following: str) -> None:
    if address == "local":
        raise UsageError(
            'expected the address of a Ray cluster that runs, found "local", which would start one',
            next_command="karat hunt --engine local",
        )
    if address != "auto":
        _require_reachable(address, following)
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
            next_command=following,
        ) from error


def _require_reachable(address: str, following: str) -> None:
    """Ray waits long for a cluster that is not there, and may end the whole process then."""
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        raise UsageError(
            f"expected the address of a Ray cluster, HOST:PORT or ray://HOST:PORT, found {address!r}",
            next_command=following,
        )
    try:
        with socket.create_connection((parts[2].strip("[]"), int(parts[3])), _REACH) as to:
            answers = _speaks_grpc(to)
    except (OSError, UnicodeError) as error:
        raise CannotVerify(
            f"expected a Ray cluster at {address}, found nobody there: {getattr(error, 'strerror', None) or error}",
            next_command=following,
        ) from error
    if not answers:
        raise CannotVerify(
            f"expected a Ray cluster at {address}, found something else there; the dashboard's port is another",
            next_command=following,
        )


def _speaks_grpc(to: socket.socket) -> bool:
    if os.environ.get("RAY_USE_TLS", "0") != "0":  # what is under it cannot be seen from here
        return True
    to.sendall(_HELLO)
    frame = to.recv(9, socket.MSG_WAITALL)
    return len(frame) == 9 and frame[3] == _SETTINGS


def _name(work: Path) -> str:
    """The same for every run of a hunt, so that clones and builds on the nodes are found again."""
    text = f"{socket.gethostname()}:{work.absolute()}"
    return f"hunt-{hashlib.sha256(os.fsencode(text)).hexdigest()[:12]}"


def _say(message: str) -> None:
    print(f"karat: {message}", file=sys.stderr, flush=True)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
