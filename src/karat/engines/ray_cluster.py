"""A Ray cluster: whether its head answers, what it has room for, and its output kept off stdout.

While the head is gone, Ray may not be asked anything: it ends the whole process, with exit code 1, a minute after it has
lost its head, and that code would be taken for an answer.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

from karat.engines.job import Resources
from karat.findings import CannotVerify

Answer = TypeVar("Answer")

_REACH = 5.0
_FRESH = 1.0
_ANSWER = 10.0
_PATIENCE = 20.0


class ClusterHead:
    """The head of a cluster, by its address; empty: somebody else keeps an eye on it."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = address
        self._place = (host.strip("[]"), int(port)) if port.isdigit() else None
        self._missing: float | None = None  # Since when it does not answer.

    @property
    def is_gone(self) -> bool:
        """Whether it did not answer when it was last looked at."""
        return self._missing is not None

    def answers(self) -> bool:
        """Whether it is there now; CannotVerify once it has been away for too long."""
        if self._place is None:
            return True
        try:
            socket.create_connection(self._place, _REACH).close()
        except OSError as error:
            now = time.monotonic()
            self._missing = now if self._missing is None else self._missing
            if now - self._missing < _PATIENCE:
                return False
            said = f"the Ray cluster at {self._address} no longer answers: {error.strerror or error}"
            raise CannotVerify(said, next_command="karat hunt resume  # when there is a cluster again") from error
        self._missing = None
        return True


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
    """What a task of Ray asks for. One core where nobody said how many: none at all would mean no limit."""
    return {
        "num_cpus": resources.cores or 1,
        "num_gpus": resources.gpus,
        "max_retries": 0,
        "scheduling_strategy": "SPREAD",
        **({"memory": resources.memory} if resources.memory else {}),
        **({"resources": dict(resources.custom)} if resources.custom else {}),
    }


def node_needs(resources: Resources) -> dict[str, float]:
    """The same, by the names that nodes have for it."""
    wanted = {"CPU": resources.cores or 1, "GPU": resources.gpus, "memory": resources.memory, **resources.custom}
    return {name: amount for name, amount in wanted.items() if amount > 0}


def jobs_per_node(there: Mapping[str, float], wanted: Mapping[str, float]) -> int:
    # Fractions such as 0.1 are not what they seem; a job too many would wait, one too few is never run.
    return min(int(there.get(name, 0.0) / amount + 1e-6) for name, amount in wanted.items())


class ClusterCapacity:
    """How many jobs a cluster can run at once, re-read as it changes."""

    def __init__(
        self, ray: Any, head: ClusterHead, resources: Resources, most: int, notice: Callable[[str], None]
    ) -> None:
        """`most` is how many may run at once at most; 0: as many as there is room for."""
        self._ray, self._head, self._wanted = ray, head, node_needs(resources)
        self._most, self._notice = most, notice
        self._read_at, self._known = -_FRESH, 0
        self._told = False
        self._nodes: list[dict[str, Any]] = []

    def slots(self) -> int:
        """How many jobs all live nodes can run at once, up to the allowed number."""
        if time.monotonic() - self._read_at >= _FRESH and self._head.answers():
            self._known = sum(jobs_per_node(node["Resources"], self._wanted) for node in self.nodes())
            self._read_at = time.monotonic()
        return min(self._known, self._most) if self._most else self._known

    def nodes(self) -> list[dict[str, Any]]:
        """Live nodes; as last known while nobody answers."""
        answer = answer_within(_ANSWER, self._ray.nodes)
        if answer is not None:
            self._nodes = [node for node in answer if node["Alive"]]
        return self._nodes

    def tell_if_none(self) -> None:
        """Say once that nothing can run until a node joins."""
        none = self.slots() == 0
        if none and not self._told:
            self._notice(f"waiting: no node of the Ray cluster has {self.wanted()}")
        self._told = none

    def wanted(self) -> str:
        """What a node must have, for a person."""
        return resources_shown(self._wanted)

    def there(self) -> str:
        """What nodes have, for a person."""
        hidden = ("node:", "object_store")
        each = [
            {n: amount for n, amount in sorted(node["Resources"].items()) if not n.startswith(hidden)}
            for node in self.nodes()
        ]
        return "; ".join(map(resources_shown, each))


def resources_shown(resources: Mapping[str, float]) -> str:
    return ", ".join(
        f"{amount / 1e9:.3g} GB of memory" if name == "memory" else f"{amount:g} {name}"
        for name, amount in resources.items()
    )
