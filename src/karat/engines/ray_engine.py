"""The Ray engine: jobs on a running cluster, to which karat is sent along; the job of a lost worker goes elsewhere.

The cluster is never started here. Ray itself retries nothing, so that every attempt is counted and reported. What a job's
commands see is the node's own environment, that of its raylet: neither the driver's, nor what Ray sets for its workers
(OMP_NUM_THREADS, PYTHONPATH), which would change what is measured. Secrets of the node are withheld as they are anywhere else.

While the head is gone, Ray may not be asked anything: it ends the whole process, with exit code 1, a minute after it has
lost its head, and that code would be taken for an answer.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

import msgspec

import karat
from karat.engines.job import EDIT, ClusterRoom, Engine, EngineSettings, Flight, Job, JobResult, Resources
from karat.engines.runner import areas_of, run_in_free_slot
from karat.findings import CannotVerify, UsageError

_REACH, _REACH_HEAD = 10.0, 5.0
_ADDRESS = re.compile(r"(ray://)?([^/@\s]+):(\d{1,5})")
# As HTTP/2 begins, which gRPC speaks: who does not answer with settings of its own is no cluster.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4
_LOOK_AGAIN = 5.0
_ENDING = 20.0
_ABANDON = 5.0
_OF_RAY = {"RAY_CLIENT_MODE", "RAY_LD_PRELOAD_ON_WORKERS"}
_OF_A_WORKER = {"OMP_NUM_THREADS", "PYTHONBREAKPOINT", "PYTHONPATH", "RAY_JOB_ID", "RAY_RAYLET_PID", "SPT_NOENV"}

Answer = TypeVar("Answer")

_FRESH = 1.0
_ANSWER = 10.0
_NOT_ASKED_FOR = ("node:", "object_store")  # What nodes have by the names of Ray itself.


class ClusterHead:
    """The head of a cluster, by its address; empty: somebody else keeps an eye on it."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address, self.is_gone = address, False
        self._place = (host.strip("[]"), int(port)) if port.isdigit() else None

    def check(self) -> None:
        """CannotVerify where it does not answer."""
        try:
            if self._place is not None:
                socket.create_connection(self._place, _REACH_HEAD).close()
        except OSError as error:
            self.is_gone = True
            said = f"the Ray cluster at {self._address} no longer answers: {error.strerror or error}"
            raise CannotVerify(said, next_command="karat hunt resume  # when there is a cluster again") from error


def answer_within(seconds: float, ask: Callable[[], Answer]) -> Answer | None:
    """What Ray says; None if it does not within the time, as when its head is lost while it is being asked.

    The question is left behind on a thread: there is no way to take it back, and waiting for it would end with the process.
    """
    said: SimpleQueue[Answer | Exception] = SimpleQueue()

    def asking() -> None:
        try:
            said.put(ask())
        except Exception as error:  # noqa: BLE001 - raised again where it was asked
            said.put(error)

    threading.Thread(target=asking, daemon=True).start()
    try:
        answer = said.get(timeout=seconds)
    except Empty:
        return None
    if isinstance(answer, Exception):
        raise answer
    return answer


class QuietStdout:
    """Stands in for stdout, where data goes, and ignores what Ray's threads write.

    One of them prints there when a node is lost, whatever `log_to_driver` says.
    """

    def __init__(self) -> None:
        self._stream, sys.stdout = sys.stdout, cast("Any", self)

    def write(self, text: str) -> int:
        of_ray = threading.current_thread().name.startswith("ray_")
        return len(text) if of_ray else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def end(self) -> None:
        """Restore stdout, unless somebody else has changed it since."""
        if sys.stdout is cast("Any", self):
            sys.stdout = self._stream


def task_options(resources: Resources) -> dict[str, Any]:
    """What a task of Ray asks for."""
    return {
        "num_cpus": resources.cores,
        "num_gpus": resources.gpus,
        "max_retries": 0,
        "scheduling_strategy": "SPREAD",
        **({"memory": resources.memory} if resources.memory else {}),
        **({"resources": dict(resources.custom)} if resources.custom else {}),
    }


class RayEngine:
    """Runs jobs on a Ray cluster. Its methods are for one thread."""

    def __init__(
        self,
        ray: Any,
        silence: QuietStdout,
        head: ClusterHead,
        work: Path,
        wanted: EngineSettings,
        notice: Callable[[str], None],
    ) -> None:
        self._ray, self._silence, self._head = ray, silence, head
        self._hunt, self._wanted, self._notice = areas_of(work), wanted, notice
        self._room = ClusterRoom("Ray", self._nodes, wanted.of_each, wanted.slots, _FRESH)
        self._known: list[dict[str, float]] = []
        self._told = False
        self._work = ray.remote(run_on_worker)
        self._flights: dict[Any, Flight] = {}  # Reference of what is awaited → the job.
        self._cancelled: list[Any] = []

    @property
    def slots(self) -> int:
        """How many jobs may run at once, as the cluster is now; while it has no room, one may wait for it."""
        return max(1, self._room.slots())

    def _nodes(self) -> list[dict[str, float]]:
        """What each live node has; as last known while nobody answers."""
        self._head.check()
        answer = answer_within(_ANSWER, self._ray.nodes)
        if answer is not None:
            alive = (sorted(node["Resources"].items()) for node in answer if node["Alive"])
            self._known = [{n: has for n, has in there if not n.startswith(_NOT_ASKED_FOR)} for there in alive]
        return self._known

    @property
    def abandoned(self) -> bool:
        """Whether its head is gone: Ray would end the process with a code that means something here."""
        return self._head.is_gone

    def require_room(self) -> None:
        try:
            self._work.options(**task_options(self._wanted.of_each))
        except ValueError as error:
            said = f"[engine] asks for what Ray cannot give: {error}"
            raise UsageError(said, next_command=EDIT) from error
        self._room.require("ray status")

    def submit(self, job: Job) -> None:
        self._start(Flight(job, time.time(), []))

    def _start(self, flight: Flight) -> None:
        remote = self._work.options(**task_options(flight.job.resources))
        self._flights[remote.remote(msgspec.msgpack.encode(flight.job), self._hunt)] = flight

    def wait(self, seconds: float | None = None) -> Sequence[JobResult]:
        until = None if seconds is None else time.monotonic() + seconds
        results: list[JobResult] = []
        while self._flights and not results:
            left = _LOOK_AGAIN if until is None else min(_LOOK_AGAIN, until - time.monotonic())
            refs = list(self._flights)
            ready, _ = self._ray.wait(refs, num_returns=1, timeout=max(0.0, left))
            if ready:
                ready = self._ray.wait(refs, num_returns=len(refs), timeout=0)[0] or ready
            results += [result for ref in ready if (result := self._taken(ref))]
            # Once, that nothing can run until a node joins.
            if (none := self._room.slots() == 0) and not self._told:
                self._notice(f"waiting: no node of the Ray cluster has {self._room.needs}")
            self._told = none
            if until is not None and time.monotonic() >= until:
                break
        return results

    def _taken(self, ref: Any) -> JobResult | None:
        """What came of a job; None if it was lost, and has been sent on its way again."""
        flight, errors = self._flights.pop(ref), self._ray.exceptions
        try:
            result = msgspec.msgpack.decode(self._ray.get(ref), type=JobResult)
        except (errors.RayTaskError, errors.RuntimeEnvSetupError) as error:
            said = f"the nodes of the Ray cluster cannot run karat, which needs msgspec there: {_line(error, -1)}"
            following = "pip install msgspec  # on every node, for the Python that Ray runs on"
            raise CannotVerify(said, next_command=following) from error
        except errors.RayError as error:
            result = flight.lost(f"{type(error).__name__}: {_line(error)}")
        ended = flight.ended(result, self._wanted.retries)
        if ended is None:
            self._start(flight)
        return ended

    def cancel(self, key: str) -> None:
        for ref, flight in list(self._flights.items()):
            if flight.job.key == key:
                del self._flights[ref]
                # Not by force: the worker stays until the job's processes have ended, and so does its slot.
                self._ray.cancel(ref, force=False)
                self._cancelled.append(ref)

    def close(self) -> None:
        if not self._head.is_gone:
            for flight in list(self._flights.values()):
                self.cancel(flight.job.key)
            if self._cancelled:
                refs = self._cancelled
                _, left = self._ray.wait(refs, num_returns=len(refs), timeout=_ENDING, fetch_local=False)
                for ref in left:
                    self._ray.cancel(ref, force=True)
        # It prints what is left of its logs, in no thread of its own.
        with contextlib.redirect_stdout(io.StringIO()):
            if self._head.is_gone:
                answer_within(_ABANDON, self._ray.shutdown)
            else:
                self._ray.shutdown()
        self._silence.end()


def _line(error: Exception, which: int = 0) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[which][:300]


def open_ray(wanted: EngineSettings, work: Path, notice: Callable[[str], None]) -> Engine:
    """An engine of the cluster at that address, at RAY_ADDRESS, or of the one that runs on this machine."""
    address = wanted.address
    try:
        import ray
    except ImportError as error:
        said = 'engine = "ray" needs Ray, which is not installed'
        raise UsageError(said, next_command="pip install 'karat[ray]'") from error
    # hunt.toml's address goes before RAY_ADDRESS.
    where = "edit [engine] address in hunt.toml" if address else "export RAY_ADDRESS=HOST:6379"
    silence = QuietStdout()
    try:
        _connect(ray, address or os.environ.get("RAY_ADDRESS") or "auto", f"{where}  # then: ray status")
    except BaseException:
        silence.end()
        raise
    # A client has a server to talk to, and hears from it.
    head = ClusterHead("" if ray.util.client.ray.is_connected() else ray.get_runtime_context().gcs_address)
    engine = RayEngine(ray, silence, head, work, wanted, notice)
    try:
        engine.require_room()
    except BaseException:
        engine.close()
        raise
    return engine


def reach(address: str, following: str) -> None:
    """Make sure that a cluster answers at HOST:PORT, as far as can be told without Ray."""
    if address == "local":
        said = 'expected the address of a Ray cluster that runs, found "local", which would start one'
        raise UsageError(said, next_command="karat hunt --engine local")
    parts = _ADDRESS.fullmatch(address)
    if parts is not None:
        # Ray waits long for a cluster that is not there, and may end the whole process then.
        try:
            with socket.create_connection((parts[2].strip("[]"), int(parts[3])), _REACH) as to:
                answers = os.environ.get("RAY_USE_TLS", "0") != "0"  # what is under it cannot be seen from here
                if not answers:
                    to.sendall(_HELLO)
                    frame = to.recv(9, socket.MSG_WAITALL)
                    answers = len(frame) == 9 and frame[3] == _SETTINGS
        except (OSError, UnicodeError) as error:
            said = f"no Ray cluster answers at {address}: {getattr(error, 'strerror', None) or error}"
            raise CannotVerify(said, next_command=following) from error
        if not answers:
            said = f"expected a Ray cluster at {address}, found something else there; the dashboard's port is another"
            raise CannotVerify(said, next_command=following)
    elif address != "auto":
        said = f"expected the address of a Ray cluster, HOST:PORT or ray://HOST:PORT, found {address!r}"
        raise UsageError(said, next_command=following)


def _connect(ray: Any, address: str, following: str) -> None:
    reach(address, following)
    # The nodes run this very karat, whichever they have.
    sent = {"py_modules": [str(Path(karat.__file__).parent)], "excludes": ["__pycache__"]}
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", runtime_env=sent)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        said = f"cannot connect to a Ray cluster at {address}: {_line(error)}"
        hint = "RAY_AUTH_MODE, RAY_AUTH_TOKEN_PATH and the version of Ray must be the same as on its nodes"
        raise CannotVerify(f"{said}. {hint}", next_command=following) from error


def run_on_worker(packed: bytes, hunt: str) -> bytes:
    """What a worker runs: one job, in a free slot of its node; `hunt` names the folder whose areas may be used again."""
    import ray

    job, node = msgspec.msgpack.decode(packed, type=Job), str(ray.get_runtime_context().get_node_id())[:8]
    gpus = tuple(map(str, ray.get_gpu_ids())) if job.resources.gpus > 0 else ()
    result = run_in_free_slot(job, hunt, lambda: False, gpus=gpus, node=node, env=_environment())
    return msgspec.msgpack.encode(result)


def _environment() -> dict[str, str]:
    """The node's own; where that cannot be read, the worker's without what is only for workers."""
    env = {name: value for name, value in os.environ.items() if name not in _OF_A_WORKER}
    try:
        raylet = Path(f"/proc/{os.getppid()}/environ").read_bytes()
    except OSError:
        raylet = b""
    if raylet:
        pairs = (os.fsdecode(entry).partition("=") for entry in raylet.split(b"\0") if entry)
        env = {name: value for name, _, value in pairs}
    # Ray hides the GPUs from those who did not ask for any.
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        env["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"]
    return {name: value for name, value in env.items() if name not in _OF_RAY}
