"""The library of wrong backwards: every wrong one fails, no right twin does. `make soak` runs it over 50 seeds."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from conftest import framework
from factories.wrong_backwards.pair import MODULES, framework_of, pairs_of
from karat.gradients.report import GradReport, GradVerdict

# jax compiles each function anew, so that one point costs as much there as three elsewhere.
SEEDS = {"torch": (1, 2), "jax": (1,), "paddle": (1, 2), "numpy": (1, 2)}


@pytest.fixture(params=MODULES)
def module(request: pytest.FixtureRequest) -> Iterator[str]:
    name = framework_of(request.param)
    made = framework(name)
    if name != "torch":
        yield str(request.param)
        return
    # Threads that wait for each other on a crowded machine cost more than all of these tensors.
    threads = made.get_num_threads()
    made.set_num_threads(1)
    yield str(request.param)
    made.set_num_threads(threads)


def test_there_are_enough_of_them() -> None:
    names = []
    for module in MODULES:
        framework(framework_of(module))
        names += [(pair.framework, pair.name) for pair in pairs_of(module)]
    assert len(names) == len(set(names))
    assert len(names) >= 120
    assert {name for name, _ in names} == {"torch", "jax", "paddle", "numpy"}


@pytest.mark.slow
def test_every_wrong_one_fails_and_no_right_one_does(module: str) -> None:
    judging = importlib.import_module("factories.wrong_backwards.judging")
    results = judging.judge_all(pairs_of(module), SEEDS[framework_of(module)])
    assert judging.misjudged(results) == []
    assert judging.inconclusive(results) == []
    assert [str(one) for one in results if one.report.vacuous] == []
    assert [str(one) for one in results if one.wrong and not told_well(one.report)] == []


def told_well(report: GradReport) -> bool:
    """A wrong gradient is located, and can be seen again."""
    failed = any(one.verdict is GradVerdict.FAIL for one in report.comparisons)
    return (
        bool(report.reason) and all(one.replay for one in report.diagnoses) and (bool(report.diagnoses) or not failed)
    )
