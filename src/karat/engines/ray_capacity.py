"""What a Ray cluster has room for, as nodes come and go."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from karat.engines.job import Resources
from karat.engines.ray_head import Head, within

_FRESH = 1.0
_ANSWER = 10.0


def options(resources: Resources) -> dict[str, Any]:
    """What a task of Ray asks for. One core where nobody said how many: none at all would mean no limit."""
    asked: dict[str, Any] = {
        "num_cpus": resources.cores or 1,
        "num_gpus": resources.gpus,
        "max_retries": 0,
        "scheduling_strategy": "SPREAD",
    }
    if resources.memory:
        asked["memory"] = resources.memory
    if resources.custom:
        asked["resources"] = dict(resources.custom)
    return asked


def needs(resources: Resources) -> dict[str, float]:
    """The same, by the names that nodes have for it."""
    wanted = {
        "CPU": resources.cores or 1,
        "GPU": resources.gpus,
        "memory": resources.memory,
        **resources.custom,
    }
    return {name: amount for name, amount in wanted.items() if amount > 0}


def fits(there: Mapping[str, float], wanted: Mapping[str, float]) -> int:
    """How many jobs a node can run at once."""
    # Fractions such as 0.1 are not what they seem; a job too many would wait, one too few is never run.
    return min(int(there.get(name, 0.0) / amount + 1e-6) for name, amount in wanted.items())


class Capacity:
    """How many jobs a cluster can run at once, re-read as it changes."""

    def __init__(
        self, ray: Any, head: Head, resources: Resources, most: int, notice: Callable[[str], None]
    ) -> None:
        """`most` is how many may run at once at most; 0: as many as there is room for."""
        self._ray, self._head, self._wanted = ray, head, needs(resources)
        self._most, self._notice = most, notice
        self._read_at, self._known = -_FRESH, 0
        self._told = False
        self._nodes: list[dict[str, Any]] = []

    def slots(self) -> int:
        """Jobs at once, over all nodes that live; no more than were allowed."""
        if time.monotonic() - self._read_at >= _FRESH and self._head.answers():
            self._known = sum(fits(node["Resources"], self._wanted) for node in self.nodes())
            self._read_at = time.monotonic()
        return min(self._known, self._most) if self._most else self._known

    def nodes(self) -> list[dict[str, Any]]:
        """Those that live; as they were, while nobody says."""
        answer = within(_ANSWER, self._ray.nodes)
        if answer is not None:
            self._nodes = [node for node in answer if node["Alive"]]
        return self._nodes

    def tell_if_none(self) -> None:
        """Say once that nothing can run until a node comes."""
        none = self.slots() == 0
        if none and not self._told:
            self._notice(f"waiting: no node of the Ray cluster has {self.wanted()}")
        self._told = none

    def wanted(self) -> str:
        """What a node must have, for a person."""
        return ", ".join(_shown(name, amount) for name, amount in self._wanted.items())

    def there(self) -> str:
        """What nodes have, for a person."""
        return "; ".join(
            ", ".join(
                _shown(name, amount)
                for name, amount in sorted(node["Resources"].items())
                if not name.startswith(("node:", "object_store"))
            )
            for node in self.nodes()
        )


def _shown(name: str, amount: float) -> str:
    return f"{amount / 1e9:.3g} GB of memory" if name == "memory" else f"{amount:g} {name}"
