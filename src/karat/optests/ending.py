"""Ending: what happens once all tests of an op test class are through.

Gradients that a class left unchecked are asked for (`probing`). Under pytest the plugin of the policy judges; under
plain unittest the class is judged here, as in the original, if all of its tests ran. With KARAT_EVIDENCE=DIR a
plain unittest run leaves the same journal as a pytest run.
"""

from __future__ import annotations

import unittest
from contextlib import suppress
from typing import Any

from karat.findings import UsageError
from karat.gradients import events
from karat.optests import plain_recording
from karat.optests.lifecycle import Life, forget, life_of, test_id

_running: list[type] = []
_listening: list[Any] = []


def begin(cls: type) -> None:
    """A test of the class starts; its first one sees to the end."""
    _running[:] = [cls]
    if not _listening:
        _listening.append(events.listen(_heard))
    life = life_of(cls)
    plain_recording.begin(test_id(cls), _names(cls), first=not life.begun)
    if not life.begun:
        life.begun = True
        cls.addClassCleanup(_end, cls)  # type: ignore[attr-defined] # a TestCase; run even if tearDownClass is overridden


def ended(test: unittest.TestCase, name: str, result: unittest.TestResult | None) -> None:
    """A test of the class came to its end, whatever it was."""
    cls = type(test)
    life = life_of(cls)
    life.ran.add(name)
    if result is not None and not plain_recording.under_pytest():
        life.passed |= plain_recording.ended(test_id(cls), name, result, test) == "passed"


def _heard(event: events.Event) -> None:
    if _running:
        life_of(_running[0]).told.append(event)


def _end(cls: type) -> None:
    life = life_of(cls)
    try:
        _probe(cls, life)
        if not plain_recording.under_pytest():
            _judge(cls, life)
    finally:
        _running.clear()
        forget(cls)


def _probe(cls: type, life: Life) -> None:
    """Asks for the gradients of which there is no evidence."""
    if life.last is None or not callable(getattr(life.last, "python_api", None)):
        return
    from karat.optests.probing import probe  # noqa: PLC0415 - seldom

    reports = [event.report for event in life.told if isinstance(event, events.Checked)]
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
            events.tell(event)


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
    from karat.optests.judging import unmet  # noqa: PLC0415 - only under plain unittest

    message = unmet(test_id(cls), life.told)
    if message:
        raise AssertionError(message)


def _names(cls: type) -> list[str]:
    return list(unittest.defaultTestLoader.getTestCaseNames(cls))
