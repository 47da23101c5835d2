"""podman with settings and storage of its own, so that a test neither sees nor leaves anything of the machine's."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from conftest import missing

# Debian's default runtime, crun, does not run on hybrid cgroups; these settings run on both kinds.
_CONTAINERS = """
[containers]
default_ulimits = ["nofile=16384:16384", "nproc=32768:32768"]
cgroups = "enabled"
netns = "host"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
_SHARED = Path("/dev/shm")  # noqa: S108 - the storage of a test has a folder of its own there
_STORAGE = """
[storage]
driver = "overlay"
graphroot = "{folder}/images"
runroot = "{folder}/running"
"""


def _memory() -> str | None:
    """In memory, where there is room: podman waits for the disk in all that it does."""
    there = _SHARED.is_dir() and os.access(_SHARED, os.W_OK)
    return str(_SHARED) if there and shutil.disk_usage(_SHARED).free > 1 << 30 else None


class Podman:
    """A podman of one's own: `env` makes every process that has it use the same one."""

    def __init__(self) -> None:
        self.program = shutil.which("podman") or missing("podman (apt install podman)")
        if shutil.which("runc") is None and not Path("/usr/sbin/runc").exists():
            missing("runc (apt install runc)")
        if os.geteuid() != 0:
            missing("root: these settings of podman are for it")
        # Not pytest's folder: storage holds files that no test may look into, and mounts.
        self.folder = Path(tempfile.mkdtemp(prefix="karat-podman-", dir=_memory()))
        self.env = {
            "CONTAINERS_CONF": self._write("containers.conf", _CONTAINERS),
            "CONTAINERS_STORAGE_CONF": self._write("storage.conf", _STORAGE.format(folder=self.folder)),
            "CONTAINERS_REGISTRIES_CONF": self._write("registries.conf", ""),
            "REGISTRY_AUTH_FILE": self._write("auth.json", "{}"),
            "DOCKER_HOST": f"unix://{self.folder}/nobody-listens",
        }

    def _write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *how: object) -> None:
        self.run("rm", "--all", "--force", "--time", "0")
        self.run("umount", "--all", "--force")
        for _ in range(50):
            self._forget()
            if not self.folder.exists():
                break
            # A container that has ended is tidied up in the background, which mounts the storage again.
            time.sleep(0.05)

    def _forget(self) -> None:
        for line in Path("/proc/mounts").read_text().splitlines():
            if (where := line.split()[1]).startswith(str(self.folder)):
                subprocess.run(["umount", "--lazy", where], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *words],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **self.env},
        )

    def names(self) -> list[str]:
        """Of all containers, running or not."""
        return self.run("ps", "--all", "--format", "{{.Names}}").stdout.split()
