"""`karat.capture` and `karat.check_and_capture`: the same capture for unittest and scripts.

Off unless a directory is given or KARAT_CAPTURE_DIR or GOLDEN_ARTIFACTS_DIR is set. A case of a TestCase that a runner
runs is published once its test has passed; in a script nobody says how it ends, so a case is published as soon as its
comparison passed. Inside a test that pytest runs with capturing on, both functions join that session, and need not be
told which test it is. With capturing off nothing else is imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

if TYPE_CHECKING:
    from pathlib import Path
    from unittest import TestCase

    from karat.captures.pytest_session import CapturePlugin
    from karat.tensors.comparison import ComparisonReport

Directory: TypeAlias = "str | os.PathLike[str] | None"


class CaptureDetails(TypedDict, total=False):
    """What a check or capture may say besides its values.

    A capture records how its caller compared, so that replays compare alike; without rtol or atol, each dtype's own
    tolerance holds.
    """

    rtol: float | None
    atol: float | None
    integers: bool  # Whether rtol and atol hold for integers as well, which are exact otherwise.
    equal_nan: bool
    check_dtype: bool

    program: str | os.PathLike[str] | bytes | bytearray | memoryview | None  # A path, or the bytes themselves.
    program_name: str | None  # What to call a program that is given as bytes.
    suite: str | None
    flow: str | None
    subtest: str | None  # Tells several captures of one test apart.
    seeds: Mapping[str, int | str] | None
    note: str | None


def require_known(function: str, details: Mapping[str, object]) -> None:
    """TypeError for a keyword that the function does not have."""
    for name in details.keys() - CaptureDetails.__annotations__.keys():
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def capture(
    test: str | TestCase | None = None,
    *,
    inputs: Any,
    expected: Any,
    directory: Directory = None,
    raw: bool = False,
    strict: bool | None = None,
    **details: Unpack[CaptureDetails],
) -> Path | None:
    """Capture a case that the caller compared itself; returns the case's folder, None if capturing is off.

    A case that cannot be captured raises `CaptureFailed` if `strict` (the default in CI), else it warns with
    `CaptureWarning`. A second capture of one identity always raises, but only warns in a TestCase, unless `strict` is
    given: its test is not to blame. `test` may be left out inside pytest.
    """
    require_known("capture", details)
    if not _is_on(directory):
        return None
    from karat.captures.check import by_caller, candidate
    from karat.captures.standalone import identity_of, take

    identity = identity_of(test, details)
    values = {"inputs": inputs, "expected": expected}
    case = candidate(identity, values, by_caller(expected, details), details, raw=raw)
    return take(case, test, directory, strict)


def check_and_capture(  # noqa: PLR0913 - one call says everything about one case
    test: str | TestCase | None = None,
    *,
    actual: Any,
    expected: Any,
    inputs: Any,
    directory: Directory = None,
    raw: bool = False,
    strict: bool | None = None,
    **details: Unpack[CaptureDetails],
) -> ComparisonReport:
    """Raise `Mismatch` unless actual is as expected; then capture the case, as `capture` would."""
    __tracebackhide__ = True
    require_known("check_and_capture", details)
    from karat.captures.check import candidate, compare

    running = os.environ.get("PYTEST_CURRENT_TEST", "check_and_capture").removesuffix(" (call)")
    title = running if test is None else test if isinstance(test, str) else test.id()
    report, passed = compare(expected, actual, title, details)
    if _is_on(directory):
        from karat.captures.standalone import identity_of, take

        values = {"inputs": inputs, "expected": expected, "actual": actual}
        case = candidate(identity_of(test, details), values, passed, details, raw=raw)
        take(case, test, directory, strict)
    return report


def _is_on(directory: Directory) -> bool:
    named = os.environ.get("KARAT_CAPTURE_DIR") or os.environ.get("GOLDEN_ARTIFACTS_DIR")
    return bool(directory or named or current_session())


# The pytest sessions that capture in this process, the innermost last.
sessions: list[CapturePlugin] = []


def current_session() -> CapturePlugin | None:
    """The innermost session, if one of its tests is running."""
    return sessions[-1] if sessions and sessions[-1].test is not None else None


class ActiveSubtests:
    """The subtests that a test is in, outermost first.

    Neither pytest 9 nor the plugin pytest-subtests says which subtest is running, so the test's own
    `subtests` object is watched: only that object, only for this test, and only beside `golden`.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self.changed: Callable[[bool], None] = lambda _: None  # Called when a subtest begins, and when it has ended.

    def watch(self, subtests: Any) -> None:
        """Notice every `subtests.test(…)` from now on."""
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
        """The name of a capture: the subtests it is in, and what its check calls itself."""
        return " / ".join([*self._names, *([own] if own else [])])


def subtest_name(message: str | None, parameters: dict[str, Any]) -> str:
    """`message (i=0, mode='fast')`."""
    # An address changes with every run, and would make another case of the same test.
    shown = {name: type(v).__name__ if " at 0x" in repr(v) else repr(v) for name, v in parameters.items()}
    words = ", ".join(f"{name}={text}" for name, text in shown.items())
    return f"{message} ({words})" if message and words else message or words or "subtest"
