"""Skips: which classes say that they need no gradient check, and why. A class speaks for itself, never for a child.

Nothing is written into the class, so that nothing can be inherited, copied or set by hand.
"""

from __future__ import annotations

import atexit
import os
import unittest
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import WeakKeyDictionary

from karat.findings import UsageError
from karat.gradients import session
from karat.gradients.session import running_test
from karat.optests.values import members, read_slots

if TYPE_CHECKING:
    from karat.policy.journal import Recorder

Class = TypeVar("Class", bound=type)
_gradient: WeakKeyDictionary[type, str] = WeakKeyDictionary()
_in_place: WeakKeyDictionary[type, str] = WeakKeyDictionary()


def skip_check_grad_ci(reason: str | None = None) -> Callable[[Class], Class]:
    """A decorator: this very class needs no gradient check, for a reason that somebody must approve."""
    said = _said("skip_check_grad_ci", reason)

    def decorate(cls: Class) -> Class:
        _gradient[cls] = said
        return cls

    return decorate


def skip_check_inplace_ci(reason: str | None = None) -> Callable[[Class], Class]:
    """A decorator: this very class needs no check of its in-place form."""
    said = _said("skip_check_inplace_ci", reason)

    def decorate(cls: Class) -> Class:
        _in_place[cls] = said
        return cls

    return decorate


def skip_reason(cls: type) -> str | None:
    """Why this very class skips its gradient check; None if it does not."""
    return _gradient.get(cls)


def _said(name: str, reason: object) -> str:
    if isinstance(reason, str) and reason.strip():
        return reason.strip()
    raise UsageError(
        f"{name}: expected reason='…' that says why, found {reason!r}",
        next_command=f"@{name}(reason='why this op has nothing to check')",
    )


# DOC-HERE lifecycle: Lifecycle: what is known of an op test class while it runs. Kept beside the class, never in it.
#
# A class speaks for itself: what its parent ran, skipped or declared is the parent's. What a test sets by hand on
# the class (`exist_check_grad`, `no_need_check_grad`) is read by nobody.


class Life:
    """What one class did so far in this process."""

    def __init__(self) -> None:
        self.declared: list[session.Declared] = []
        self.ran: set[str] = set()
        """Test methods that came to their end, whatever it was."""
        self.passed = False
        """Whether one of them passed, as far as plain unittest tells."""
        self.told: list[session.Event] = []
        """Every event that was told while a test of the class ran."""
        self.begun = False
        self.last: Any = None
        """The last instance that was set up: its inputs are what a probe at the end needs."""


_lives: WeakKeyDictionary[type, Life] = WeakKeyDictionary()


def life_of(cls: type) -> Life:
    """The life of this very class."""
    if cls not in _lives:
        _lives[cls] = Life()
    return _lives[cls]


def forget(cls: type) -> None:
    """Ends a life: a class that runs again starts anew."""
    _lives.pop(cls, None)


def test_id(cls: type) -> str:
    """`file.py::Class`, seen from pytest's root, or from the current folder."""
    running = running_test()
    if running:
        path, _, rest = running.partition("[")[0].partition("::")
        names = rest.split("::")
        if len(names) > 1 and names[-2] == cls.__name__:
            return "::".join([path, *names[:-1]])
    return f"{source(cls)[0]}::{cls.__name__}"


def source(cls: type) -> tuple[str, int]:
    """The file of a class, seen from the current folder, and its line; `` and 0 if nobody knows."""
    import inspect  # noqa: PLC0415 - once per class
    import sys  # noqa: PLC0415

    module = sys.modules.get(cls.__module__)
    path = getattr(module, "__file__", None)
    if path is None:
        return cls.__module__, 0
    try:
        line = inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        line = 0  # made by a function at run time
    here = Path(path).resolve()
    try:
        return here.relative_to(Path.cwd()).as_posix(), line
    except ValueError:
        return here.name, line


def declare(test: Any, op: str, no_grad: frozenset[str] = frozenset()) -> None:
    """Tells which op a class tests and what goes in, once for each thing that is new."""
    cls = type(test)
    life = life_of(cls)
    life.last = test
    file, line = source(cls)
    inputs = {one.name: one.dtype for one in members(read_slots(test.inputs, "inputs"))}
    event = session.Declared(
        op=op,
        test=test_id(cls),
        file=file,
        line=line,
        inputs=inputs,
        no_grad=tuple(sorted(no_grad & inputs.keys())),
        skip_reason=skip_reason(cls),
    )
    if event not in life.declared:
        life.declared.append(event)
        session.notify(event)


# DOC-HERE plain_recording: Evidence of plain unittest runs: with KARAT_EVIDENCE=DIR they leave the journal that a pytest run leaves.
#
# Under pytest the plugin keeps it, and nothing happens here.

FOLDER = "KARAT_EVIDENCE"
_kept: list[Recorder] = []
_ran: list[str] = []


def under_pytest() -> bool:
    """Whether pytest runs this test; its plugin keeps evidence and judges. A process that a test starts is no such run."""
    return running_test() is not None


def begin(test: str, names: list[str], *, first: bool) -> None:
    """A test of a class starts; with its first one the class counts as found."""
    recorder = _recorder()
    if recorder is None:
        return
    from karat.policy.journal import Collected  # noqa: PLC0415 - only for runs that keep evidence

    recorder.current = test
    if first:
        recorder.note(Collected(test=test, selected=len(names)))


def ended(test: str, name: str, result: unittest.TestResult, case: object) -> str:
    """A test of a class came to its end: `passed`, `failed` or `skipped`."""
    failed = [why for one, why in (*result.failures, *result.errors) if _is(one, case)]
    skipped = [why for one, why in result.skipped if _is(one, case)]
    outcome: Literal["passed", "failed", "skipped"]
    outcome = "failed" if failed else "skipped" if skipped else "passed"
    recorder = _recorder()
    if recorder is None:
        return outcome
    from karat.policy.journal import Outcome  # noqa: PLC0415

    _ran.append(name)
    reason = (failed or skipped or [""])[0].strip().splitlines()
    recorder.note(
        Outcome(
            test=test, item=f"{test}::{name}", outcome=outcome, reason=reason[-1] if reason else ""
        )
    )
    return outcome


def _is(found: object, case: object) -> bool:
    """A subtest stands for its test."""
    return getattr(found, "test_case", found) is case


def _recorder() -> Recorder | None:
    folder = os.environ.get(FOLDER)
    if not folder or under_pytest():
        return None
    if not _kept:
        from karat.policy.journal import Recorder, place_of  # noqa: PLC0415

        recorder = Recorder(folder, worker="unittest", root=place_of(Path.cwd()))
        _kept.append(recorder)
        session.listen(recorder.tell)
        atexit.register(lambda: recorder.end(0, ran=len(_ran)))
    return _kept[0]


# DOC-HERE ending: Ending: what happens once all tests of an op test class are through.
#
# Gradients that a class left unchecked are asked for (`probing`). Under pytest the plugin of the policy judges; under
# plain unittest the class is judged here, as in the original, if all of its tests ran. With KARAT_EVIDENCE=DIR a
# plain unittest run leaves the same journal as a pytest run.

_running: list[type] = []
_listening: list[Any] = []


def begin_ending(cls: type) -> None:
    """A test of the class starts; its first one sees to the end."""
    _running[:] = [cls]
    if not _listening:
        _listening.append(session.listen(_heard))
    life = life_of(cls)
    begin(test_id(cls), _names(cls), first=not life.begun)
    if not life.begun:
        life.begun = True
        cls.addClassCleanup(_end, cls)  # type: ignore[attr-defined] # a TestCase; run even if tearDownClass is overridden


def ended_ending(test: unittest.TestCase, name: str, result: unittest.TestResult | None) -> None:
    """A test of the class came to its end, whatever it was."""
    cls = type(test)
    life = life_of(cls)
    life.ran.add(name)
    if result is not None and not under_pytest():
        life.passed |= ended(test_id(cls), name, result, test) == "passed"


def _heard(event: session.Event) -> None:
    if _running:
        life_of(_running[0]).told.append(event)


def _end(cls: type) -> None:
    life = life_of(cls)
    try:
        _probe(cls, life)
        if not under_pytest():
            _judge(cls, life)
    finally:
        _running.clear()
        forget(cls)


def _probe(cls: type, life: Life) -> None:
    """Asks for the gradients of which there is no evidence."""
    if life.last is None or not callable(getattr(life.last, "python_api", None)):
        return
    from karat.optests.checks import probe  # noqa: PLC0415 - seldom

    reports = [event.report for event in life.told if isinstance(event, session.Checked)]
    ops = {event.op for event in life.declared}
    checked = {
        one.input
        for report in reports
        if report.op in ops
        for one in report.comparisons
        if one.counts
    }
    with suppress(UsageError):  # every test that came so far has said it
        for event in probe(life.last, test_id(cls), checked):
            session.notify(event)


def _judge(cls: type, life: Life) -> None:
    """AssertionError with what is missing and the three ways to set it right; nothing if not all of it ran."""
    if not set(_names(cls)) <= life.ran:
        return
    if not life.declared and not life.passed:
        return  # each of its tests was skipped, or failed before it said what it tests: unittest tells
    if not life.declared:
        raise AssertionError(
            f"{test_id(cls)}: expected setUp to say op_type and inputs, found neither; "
            "a test of anything but an operator inherits from unittest.TestCase"
        )
    from karat.optests.policy_verdict import unmet  # noqa: PLC0415 - only under plain unittest

    message = unmet(test_id(cls), life.told)
    if message:
        raise AssertionError(message)


def _names(cls: type) -> list[str]:
    return list(unittest.defaultTestLoader.getTestCaseNames(cls))
