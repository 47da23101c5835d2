"""The state of a process that a function may leave changed, put back before the next case.

A worker goes on from case to case, and what one call did to the process must not decide over the next: where
it stands, what its environment says, how its random numbers and its framework are set. Each case finds all of
that as it was before the first one.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

_Put: TypeAlias = Callable[[], None]


class ProcessState:
    """What the first call found, for all that follow."""

    def __init__(self) -> None:
        self._back: dict[str, _Put] = {}

    @contextlib.contextmanager
    def same(self) -> Iterator[None]:
        """A call that finds the state of the first one, and leaves it to karat."""
        for name, remember in _KINDS.items():
            # A framework counts from when it is there; nobody could have changed it before.
            if name not in self._back and (put := remember()) is not None:
                self._back[name] = put
        try:
            yield
        finally:
            for put in self._back.values():
                put()


def _folder() -> _Put | None:
    try:
        here = os.getcwd()  # noqa: PTH109 - a word to give back, not a path to work with
    except OSError:
        return None  # somebody took it away, and nothing can bring it back

    def put() -> None:
        with contextlib.suppress(OSError):
            os.chdir(here)

    return put


def _environment() -> _Put:
    found = dict(os.environ)

    def put() -> None:
        if os.environ != found:
            os.environ.clear()
            os.environ.update(found)

    return put


def _import_path() -> _Put:
    found = [*sys.path]

    def put() -> None:
        sys.path[:] = found

    return put


def _python_random() -> _Put:
    found = random.getstate()
    return lambda: random.setstate(found)


def _numpy() -> _Put | None:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return None
    numbers, errors = numpy.random.get_state(), numpy.geterr()

    def put() -> None:
        numpy.random.set_state(numbers)
        numpy.seterr(**errors)

    return put


def _torch() -> _Put | None:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    numbers, gradients = torch.get_rng_state(), torch.is_grad_enabled()
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    exact = torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()

    def put() -> None:
        torch.set_rng_state(numbers)
        torch.set_grad_enabled(gradients)
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(exact, warn_only=warn)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)

    return put


_KINDS: dict[str, Callable[[], _Put | None]] = {
    "folder": _folder,
    "environment": _environment,
    "import path": _import_path,
    "random": _python_random,
    "numpy": _numpy,
    "torch": _torch,
}
