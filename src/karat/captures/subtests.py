"""Subtests: which of pytest's subtests is under way, so that its captures have a name of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Active:
    """The subtests that a test is in, outermost first.

    Neither pytest 9 nor the plugin pytest-subtests tells which subtest is running, so the test's own
    `subtests` object is watched: only that object, only for this test, and only beside `golden`.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self.changed: Callable[[bool], None] = lambda _: None
        """Called when a subtest begins, and when it has ended."""

    def watch(self, subtests: Any) -> None:
        """From now on, `subtests.test(…)` is noticed."""
        begin = subtests.test

        @contextmanager
        def test(msg: str | None = None, **parameters: Any) -> Iterator[Any]:
            inner = begin(msg, **parameters)
            self._names.append(subtest_name(msg, parameters))
            self.changed(True)
            try:
                with inner as given:
                    yield given
            finally:
                self.changed(False)
                self._names.pop()

        subtests.test = test

    def name(self, own: str | None) -> str:
        """The name of a capture: of the subtests it is in, and what its check calls itself."""
        return " / ".join([*self._names, *([own] if own else [])])


def subtest_name(message: str | None, parameters: dict[str, Any]) -> str:
    """`message (i=0, mode='fast')`."""
    words = ", ".join(f"{name}={_value(value)}" for name, value in parameters.items())
    return f"{message} ({words})" if message and words else message or words or "subtest"


def _value(value: Any) -> str:
    text = repr(value)
    # An address is another one tomorrow, and would make another case of the same test.
    return type(value).__name__ if " at 0x" in text else text
