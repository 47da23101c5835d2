"""The record of an op test class: what it skips, what it did while it ran, and what is left to ask once its tests are through.

All of it is kept beside the class, never in it, so that nothing can be inherited, copied or set by hand: a skip or a
check counts for the class itself, never for a child. What a test sets by hand (`exist_check_grad`, `no_need_check_grad`) is not read.

Gradients that a class left unchecked are probed at its end (`checks.probe`). The policy judges, from journals: pytest's
plugin writes them, and with KARAT_EVIDENCE=DIR a plain unittest run leaves the same.
"""

from __future__ import annotations

import atexit
import inspect
import os
import sys
import unittest
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import WeakKeyDictionary

from karat.findings import UsageError
from karat.gradients import session
from karat.gradients.report import GradReport
from karat.gradients.session import running_test
from karat.optests.checks import probe
from karat.optests.subject import members, read_slots

if TYPE_CHECKING:
    from karat.policy.journal import Recorder

Class = TypeVar("Class", bound=type)
skip_reasons: WeakKeyDictionary[type, str] = WeakKeyDictionary()  # Why this very class skips its gradient check.


def skip_check_grad_ci(reason: str | None = None) -> Callable[[Class], Class]:
    """A decorator: this very class needs no gradient check, for a reason that somebody must approve."""
    why = _stripped("skip_check_grad_ci", reason)

    def decorate(cls: Class) -> Class:
        skip_reasons[cls] = why
        return cls

    return decorate


def skip_check_inplace_ci(reason: str | None = None) -> Callable[[Class], Class]:
    """A decorator of Paddle's files; op tests make no check of an in-place form here, so there is none to skip."""
    _stripped("skip_check_inplace_ci", reason)
    return lambda cls: cls


def _stripped(name: str, reason: object) -> str:
    if not isinstance(reason, str) or not reason.strip():
        text = f"{name}: expected reason='…' that says why, found {reason!r}"
        raise UsageError(text, next_command=f"@{name}(reason='why this op has nothing to check')")
    return reason.strip()


class ClassRecord:
    def __init__(self) -> None:
        self.declared: list[session.Declared] = []
        self.reports: list[GradReport] = []
        self.begun = False
        self.last: Any = None  # the last instance that was set up: its inputs are what a probe at the end needs


_records: WeakKeyDictionary[type, ClassRecord] = WeakKeyDictionary()


def record_of(cls: type) -> ClassRecord:
    return _records.setdefault(cls, ClassRecord())


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
    """The file of a class, seen from the current folder, and its line; `` and 0 if unknown."""
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
    """Declare which op a class tests and its inputs, once for each new combination."""
    cls = type(test)
    record = record_of(cls)
    record.last = test
    file, line = source(cls)
    inputs = {one.name: one.dtype for one in members(read_slots(test.inputs, "inputs"))}
    event = session.Declared(
        op=op,
        test=test_id(cls),
        file=file,
        line=line,
        inputs=inputs,
        no_grad=tuple(sorted(no_grad & inputs.keys())),
        skip_reason=skip_reasons.get(cls),
    )
    if event not in record.declared:
        record.declared.append(event)
        session.notify(event)


_kept: list[Recorder] = []
_ran: list[str] = []


def _recorder() -> Recorder | None:
    folder = os.environ.get("KARAT_EVIDENCE")
    if not folder or running_test() is not None:  # pytest's plugin keeps evidence, and judges
        return None
    if not _kept:
        from karat.policy.journal import Recorder

        recorder = Recorder(folder, worker="unittest", suite=Path.cwd())
        _kept.append(recorder)
        session.listen(recorder.tell)
        atexit.register(lambda: recorder.end(0, ran=len(_ran)))
    return _kept[0]


_running: list[type] = []
_listening: list[Any] = []


def begin_test(cls: type) -> None:
    """A test of the class starts; its first one sees to the end."""
    _running[:] = [cls]
    if not _listening:
        _listening.append(session.listen(_remember))
    record = record_of(cls)
    recorder = _recorder()
    if recorder is not None:
        from karat.policy.journal import Collected

        recorder.current = test_id(cls)
        if not record.begun:  # with its first test the class counts as found
            names = unittest.defaultTestLoader.getTestCaseNames(cls)
            recorder.note(Collected(test=test_id(cls), selected=len(names)))
    if not record.begun:
        record.begun = True
        cls.addClassCleanup(_end, cls)  # type: ignore[attr-defined] # a TestCase; run even if tearDownClass is overridden


def end_test(test: unittest.TestCase, name: str, result: unittest.TestResult | None) -> None:
    """A test of the class ended: its outcome goes to the journal of a plain unittest run, if there is one."""
    recorder = _recorder()
    if result is None or recorder is None:
        return
    from karat.policy.journal import ItemOutcome

    def reasons(listed: Iterable[tuple[object, str]]) -> list[str]:
        # A subtest stands for its test.
        return [why for one, why in listed if getattr(one, "test_case", one) is test]

    _ran.append(name)
    unit, failed, skipped = test_id(type(test)), reasons([*result.failures, *result.errors]), reasons(result.skipped)
    outcome: Literal["passed", "failed", "skipped"] = "failed" if failed else "skipped" if skipped else "passed"
    reason = ((failed or skipped or [""])[0].strip().splitlines() or [""])[-1]
    recorder.note(ItemOutcome(test=unit, item=f"{unit}::{name}", outcome=outcome, reason=reason))


def _remember(event: session.Event) -> None:
    if _running and isinstance(event, session.GradChecked):
        record_of(_running[0]).reports.append(event.report)


def _end(cls: type) -> None:
    """Probe the gradients without evidence."""
    record = record_of(cls)
    try:
        if record.last is not None:
            ops = {event.op for event in record.declared}
            mine = [one for report in record.reports if report.op in ops for one in report.comparisons]
            checked = {one.input for one in mine if one.counts}
            with suppress(UsageError):  # the tests have reported it
                for event in probe(record.last, test_id(cls), checked):
                    session.notify(event)
    finally:
        _running.clear()
        _records.pop(cls, None)  # a class that runs again starts anew
