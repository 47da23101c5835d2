"""Evidence of plain unittest runs: with KARAT_EVIDENCE=DIR they leave the journal that a pytest run leaves.

Under pytest the plugin keeps it, and nothing happens here.
"""

from __future__ import annotations

import atexit
import os
import unittest
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from karat.gradients import events
from karat.gradients.running import running_test

if TYPE_CHECKING:
    from karat.policy.recording import Recorder

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
    from karat.policy.records import Collected  # noqa: PLC0415 - only for runs that keep evidence

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
    from karat.policy.records import Outcome  # noqa: PLC0415

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
        from karat.policy.recording import Recorder, place_of  # noqa: PLC0415

        recorder = Recorder(folder, worker="unittest", root=place_of(Path.cwd()))
        _kept.append(recorder)
        events.listen(recorder.tell)
        atexit.register(lambda: recorder.end(0, ran=len(_ran)))
    return _kept[0]
