"""Pairs judged by karat, over seeds: which twin got which verdict."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from factories.wrong_backwards.pair import Case, Pair
from karat import gradcheck
from karat.gradients.report import GradReport, GradVerdict


class Judged(NamedTuple):
    """One twin at one seed."""

    pair: Pair
    wrong: bool
    seed: int
    report: GradReport
    forwards: int
    """Calls of the function itself, counted from outside."""
    seconds: float

    @property
    def as_it_should_be(self) -> bool:
        """A wrong one fails; a right one does not."""
        return (self.report.verdict is GradVerdict.FAIL) == self.wrong

    def __str__(self) -> str:
        """For whoever reads why a test failed."""
        kind = "wrong" if self.wrong else "right"
        return (
            f"{self.pair.framework}, {self.pair.name}, the {kind} one at seed {self.seed}: "
            f"{self.report.verdict} ({self.report.reason})"
        )


def counted(fn: Callable[..., Any]) -> tuple[Callable[..., Any], Counter[str]]:
    """The function, and how often it was called."""
    calls: Counter[str] = Counter()

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        calls["forward"] += 1
        return fn(*args, **kwargs)

    return wrapper, calls


def judge(pair: Pair, *, wrong: bool, seed: int, device: str = "cpu") -> Judged:
    """What karat says about one twin."""
    case: Case = pair.case(wrong=wrong, seed=seed, device=device)
    fn, calls = counted(case.fn)
    begin = time.perf_counter()
    report = gradcheck(fn, case.inputs, op=pair.name, seed=seed, **case.options)
    return Judged(pair, wrong, seed, report, calls["forward"], time.perf_counter() - begin)


def judge_all(pairs: Iterable[Pair], seeds: Iterable[int], *, device: str = "cpu") -> list[Judged]:
    """Both twins of every pair at every seed."""
    chosen = tuple(seeds)
    return [
        judge(pair, wrong=wrong, seed=seed, device=device)
        for pair in pairs
        for wrong in (True, False)
        for seed in chosen
    ]


def misjudged(results: Iterable[Judged]) -> list[str]:
    """What is not as it should be, in words."""
    return [str(one) for one in results if not one.as_it_should_be]


def inconclusive(results: Iterable[Judged]) -> list[str]:
    """Right twins of which nothing could be said."""
    return [str(one) for one in results if not one.wrong and one.report.verdict is GradVerdict.INCONCLUSIVE]
