"""The library of wrong backwards: every wrong one fails, no right twin does. `make soak` runs it over 50 seeds."""

from __future__ import annotations

import importlib

import pytest

from conftest import framework
from factories.wrong_backwards.pair import MODULES, framework_of, pairs_of

SEEDS = (1, 2)


@pytest.fixture(params=MODULES)
def module(request: pytest.FixtureRequest) -> str:
    framework(framework_of(request.param))
    return str(request.param)


def test_there_are_enough_of_them() -> None:
    names = []
    for module in MODULES:
        framework(framework_of(module))
        names += [(pair.framework, pair.name) for pair in pairs_of(module)]
    assert len(names) == len(set(names))
    assert len(names) >= 120
    assert {name for name, _ in names} == {"torch", "jax", "paddle", "numpy"}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_wrong_one_fails_and_no_right_one_does(module: str, seed: int) -> None:
    judging = importlib.import_module("factories.wrong_backwards.judging")
    results = judging.judge_all(pairs_of(module), [seed])
    assert judging.misjudged(results) == []
    assert judging.inconclusive(results) == []


def test_a_failure_says_where_and_how_to_see_it_again(module: str) -> None:
    judging = importlib.import_module("factories.wrong_backwards.judging")
    for pair in pairs_of(module):
        report = judging.judge(pair, wrong=True, seed=3).report
        assert report.reason
        if any(one.verdict == "FAIL" for one in report.comparisons):
            assert report.diagnoses, pair.name
            assert all(one.replay for one in report.diagnoses), pair.name
