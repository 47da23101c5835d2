"""Slurm clusters: real ones from Debian's packages, of several nodes on this machine, with settings and ports of their own."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_READY = 60.0
NODES = ("first", "second")


class SlurmCluster:
    """A controller and two nodes with two cores and two make-believe GPUs each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Returns once the cluster would take jobs."""
        folder = self.folder
        key = folder / "key"
        key.write_bytes(secrets.token_bytes(32))
        key.chmod(0o600)
        files = [f"--{what}-file={folder / f'munge.{what}'}" for what in ("pid", "log", "seed")]
        self._start("munged", "--foreground", f"--socket={self._socket}", f"--key-file={key}", *files)
        while not self._socket.exists():
            self._alive()
        for number in range(2):
            (folder / f"gpu{number}").touch()
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-1]\n", encoding="ascii")
        self._make_plugin()
        (folder / "slurm.conf").write_text(self._settings(), encoding="ascii")
        self._start("slurmctld", "-D", "-i")
        for node in NODES:
            (folder / node).mkdir()
            self._start("slurmd", "-D", "-N", node)
        until = time.monotonic() + _READY
        while self.states() != dict.fromkeys(NODES, "idle"):
            self._alive()
            if time.monotonic() > until:
                raise RuntimeError(f"no Slurm cluster: {self.states()}\n{self._logs()}")

    @property
    def _socket(self) -> Path:
        return self.folder / "munge.socket"

    def _settings(self) -> str:
        host, folder = socket.gethostname().split(".")[0], self.folder
        controller, *ports = _free_ports(1 + len(NODES))
        settings = {
            "ClusterName": "karat",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmctldPort": controller,
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={self._socket}",
            "CredType": "cred/munge",
            "StateSaveLocation": folder / "state",
            "SlurmdSpoolDir": folder / "%n",
            "SlurmctldPidFile": folder / "controller.pid",
            "SlurmdPidFile": folder / "%n.pid",
            "SlurmctldLogFile": folder / "controller.log",
            "SlurmdLogFile": folder / "%n.log",
            # Neither cgroups nor accounting: a machine for tests has not always the former, and the latter needs MySQL.
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "AccountingStorageType": "accounting_storage/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "GresTypes": "gpu",
            "PlugStackConfig": folder / "plugstack.conf",
            "MpiDefault": "none",
            "ReturnToService": 2,
            "KillWait": 10,
            "SlurmdParameters": "config_overrides",
            "SchedulerParameters": "sched_interval=1,batch_sched_delay=0",
        }
        lines = [f"{name}={value}" for name, value in settings.items()]
        for node, port in zip(NODES, ports, strict=True):
            place = f"NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
            lines.append(f"NodeName={node} {place} CPUs=2 RealMemory=1000 Gres=gpu:2")
        lines.append("PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE")
        return "\n".join(lines) + "\n"

    def _make_plugin(self) -> None:
        """A plugin with pyxis's options, which runs no container: it shows the task what was asked for."""
        stack = ""
        if shutil.which("cc") and Path("/usr/include/slurm/spank.h").exists():
            source, library = Path(__file__).with_name("pyxis_options.c"), self.folder / "pyxis.so"
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
            stack = f"required {library}\n"
        self.has_pyxis = bool(stack)
        (self.folder / "plugstack.conf").write_text(stack, encoding="ascii")

    def _start(self, *words: str) -> None:
        with (self.folder / f"out-{len(self._processes)}").open("wb") as file:
            process = subprocess.Popen(
                words,
                env={**os.environ, **self.env, "PATH": f"{os.environ['PATH']}:/usr/sbin"},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)

    def _alive(self) -> None:
        """A short pause; RuntimeError if one of the servers has ended."""
        time.sleep(0.05)
        if any(process.poll() is not None for process in self._processes):
            raise RuntimeError(f"a server of Slurm has ended\n{self._logs()}")

    def _logs(self) -> str:
        found = sorted([*self.folder.glob("*.log"), *self.folder.glob("out-*")])
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-2000:]}" for path in found)

    def ask(self, *words: str) -> str:
        """What a command of Slurm prints."""
        env = {**os.environ, **self.env}
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=60)
        return done.stdout.strip()

    def states(self) -> dict[str, str]:
        lines = self.ask("sinfo", "--noheader", "--Node", "--format=%N %t").splitlines()
        return {words[0]: words[1] for words in map(str.split, lines)}

    def jobs(self) -> list[str]:
        """Numbers and states of jobs that have not ended."""
        return self.ask("squeue", "--noheader", "--array", "--format=%i %T").splitlines()

    def drain(self, node: str) -> None:
        """As for repair: no new jobs; then the node goes away, whoever is still there."""
        self.ask("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
        self.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")

    def resume(self, node: str) -> None:
        # A node that is only drained has nothing to resume from `down`, and the other way round.
        for state in ("RESUME", "IDLE"):
            self.ask("scontrol", "update", f"NodeName={node}", f"State={state}")

    def close(self) -> None:
        if len(self._processes) > 1:
            self.ask("scancel", "--user=root", "--signal=KILL", "--full")
            self.ask("scancel", "--user=root")
            until = time.monotonic() + 20
            while self.jobs() and time.monotonic() < until:
                time.sleep(0.1)
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def slurm_cluster() -> Iterator[SlurmCluster]:
    # Everybody may enter it, as munge wants; what must not be read is not readable.
    folder = Path(tempfile.mkdtemp(prefix="ks"))
    folder.chmod(0o755)
    cluster = SlurmCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]
