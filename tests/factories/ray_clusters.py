"""Ray clusters: real ones, of several nodes, on this machine; stopped by process id."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from karat.system.processes import descendants, processes

_READY = 60.0


class RayNode:
    """One node: `ray start --block` and everything below it."""

    def __init__(self, words: list[str], env: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [str(Path(sys.executable).with_name("ray")), "start", "--block", *words],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ready(self) -> None:
        """Returns once the node has said that it runs."""
        until = time.monotonic() + _READY
        while b"Ray runtime started" not in self._log.read_bytes():
            ended = self._process.poll()
            if ended is not None or time.monotonic() > until:
                raise RuntimeError(f"no Ray node ({ended}):\n{self._log.read_text()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """As if the machine had lost its power: every process of the node at once."""
        if self._process.poll() is not None:  # its number may be somebody else's by now
            return
        own = {self._process.pid}
        for pid in own | descendants(self._process.pid, processes()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


class RayCluster:
    """A head with two cores, and nodes that come and go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        token = folder / "token"
        token.write_text(secrets.token_hex(32), encoding="ascii")
        token.chmod(0o600)
        self.env = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            # What a lost node costs is how long it takes to notice.
            "RAY_health_check_initial_delay_ms": "0",
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_timeout_ms": "500",
            "RAY_health_check_failure_threshold": "3",
        }
        port = _free_port()
        self.address = f"127.0.0.1:{port}"
        self._nodes: list[RayNode] = []
        self.head = self._node(["--head", f"--port={port}", "--include-dashboard=false"], "head", 2)

    def add(self, name: str, cores: int = 2) -> RayNode:
        """A further node, with a resource of its name."""
        return self._node([f"--address={self.address}"], name, cores)

    def _node(self, words: list[str], name: str, cores: int) -> RayNode:
        # Of one letter: paths of sockets are short.
        temporary = self.folder / str(len(self._nodes))
        temporary.mkdir()
        common = [
            "--node-ip-address=127.0.0.1",
            f"--num-cpus={cores}",
            f"--resources={json.dumps({name: 100})}",
            "--object-store-memory=100000000",
            f"--temp-dir={temporary}",
            "--disable-usage-stats",
            "--include-log-monitor=false",
        ]
        areas = {"KARAT_AREAS": str(self.folder / "areas"), "OF_NODE": name}
        # Paddle, imported by another test of this process, sets threads for everybody; a node is nobody's child.
        own = {k: v for k, v in os.environ.items() if k not in {"OMP_NUM_THREADS", "PYTHONPATH"}}
        env = {**own, **self.env, **areas}
        node = RayNode([*words, *common], env, self.folder / f"{name}.log")
        self._nodes.append(node)
        node.ready()
        return node

    def close(self) -> None:
        for node in reversed(self._nodes):
            node.kill()


@contextlib.contextmanager
def ray_cluster() -> Iterator[RayCluster]:
    """A cluster of one node; add others."""
    if " " in sys.executable:
        pytest.skip("Ray starts its workers by a line that it splits at spaces, and this Python's path has one")
    # Short: the path of a socket in it may have 107 letters.
    folder = Path(tempfile.mkdtemp(prefix="kr"))
    cluster = None
    try:
        cluster = RayCluster(folder)
        yield cluster
    finally:
        if cluster is not None:
            cluster.close()
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
