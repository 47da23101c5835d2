"""The laws of a problem, tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from karat.gradients.adapters.framework_problem import open_problem
from karat.gradients.laws import check_properties
from karat.gradients.report import GradVerdict, Property


def tried(fn: Callable[..., Any], inputs: Any, seed: int = 0, **more: Any) -> tuple[Property, ...]:
    in_place = more.pop("in_place", None)
    bound = more.pop("nondeterminism_bound", 0.0)
    return check_properties(
        open_problem(fn, inputs, **more), rng=np.random.default_rng(seed), in_place=in_place, nondeterminism_bound=bound
    )


def broken(found: tuple[Property, ...]) -> set[str]:
    return {one.name for one in found if one.verdict is GradVerdict.FAIL}


def passed(found: tuple[Property, ...]) -> set[str]:
    return {one.name for one in found if one.verdict is GradVerdict.PASS}
