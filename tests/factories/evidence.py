"""Journals of evidence, as a worker of a test run leaves them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from karat.gradients.report import GradVerdict
from karat.policy.journal import Began, Collected, Ended, Evidence, ItemOutcome, OpTested, Record, encode

TEST = "tests/test_ops.py::TestTanh"


def evidence(**said: Any) -> Evidence:
    """A comparison that counts, unless said otherwise."""
    usual: dict[str, Any] = {
        "op": "tanh",
        "input": "X",
        "output": "Out",
        "dtype": "float64",
        "device": "cpu",
        "mode": "reverse",
        "order": 1,
        "test": TEST,
        "verdict": GradVerdict.PASS,
        "oracle": "complex-step",
        "strength": "strong",
        "vacuous": False,
        "error": 1e-16,
        "tolerance": 1e-13,
        "smallest_error": 1e-12,
        "seed": 7,
    }
    return Evidence(**(usual | said))


def declared(**said: Any) -> OpTested:
    """An op test with one input in double precision, unless said otherwise."""
    usual: dict[str, Any] = {"op": "tanh", "test": TEST, "file": "tests/test_ops.py", "inputs": {"X": "float64"}}
    return OpTested(**(usual | said))


def collected(test: str = TEST, selected: int = 1, deselected: int = 0, **said: Any) -> Collected:
    return Collected(test=test, selected=selected, deselected=deselected, **said)


def outcome(name: str = "test_check_grad", result: Any = "passed", **said: Any) -> ItemOutcome:
    test = said.pop("test", TEST)
    return ItemOutcome(test=test, item=f"{test}::{name}", outcome=result, **said)


def op_test(*more: Record, test: str = TEST, **said: Any) -> list[Record]:
    """A whole op test of one item, with these records beside."""
    return [collected(test), declared(test=test, **said), *more, outcome(test=test)]


def journal(
    folder: Path,
    records: Iterable[Record],
    *,
    session: str = "s1",
    worker: str = "main",
    started: str = "2026-11-15T10:00:00+00:00",
    whole: bool = True,
    ended: bool = True,
    **said: Any,
) -> Path:
    """Writes a journal; `said` goes into its first line."""
    began = Began(session=session, worker=worker, karat="0.1.0", python="3.11.7", started=started, **said)
    lines: list[Record] = [began, *records]
    data = b"".join(encode(one) + b"\n" for one in lines)
    if ended:
        ran, seal = sum(isinstance(one, ItemOutcome) for one in lines), hashlib.sha256(data).hexdigest()
        data += encode(Ended(exit_status=0, ran=ran, whole=whole, seal=seal)) + b"\n"
    path = folder / f"evidence-{session}-{worker}-1.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
