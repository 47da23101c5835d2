"""What a check costs and what it can see, from 10² to 10⁶ elements: karat, torch's fast mode, torch's slow mode.

Three ops of one input: a sine, a softmax over rows of 10, a product with a fixed matrix. Forwards are calls of the
function, counted from outside; times are the best of three, and stand beside one forward with its backward. Slow mode
needs 2N forwards and an N × N Jacobian, so it ends at --slow; fast mode begins slow mode once it has refused, and is
stopped there. The smallest error that a checker sees is measured: one
element of the gradient, at a third of the array, is planted an error relative to itself, and bisection finds the
smallest that is refused. Run: make bench-gradients
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import torch

import karat
from factories.wrong_backwards.judging import counted
from factories.wrong_backwards.torch_function import op

Fn = Callable[..., Any]
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
WIDTH = 10


class Cost(NamedTuple):
    """One check: how often the function ran, how long it took, whether it was satisfied."""

    forwards: int
    seconds: float
    accepted: bool


class Operator(NamedTuple):
    """A forward and its right backward."""

    name: str
    forward: Fn
    backward: Fn


def matrix() -> Any:
    return torch.randn(WIDTH, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


W = matrix()
OPERATORS = (
    Operator("sine", torch.sin, lambda g, _y, x: g * torch.cos(x)),
    Operator(
        "softmax",
        lambda x: torch.softmax(x.view(-1, WIDTH), -1).view(-1),
        lambda g, y, _x: (y.view(-1, WIDTH) * (g.view(-1, WIDTH) - (g * y).view(-1, WIDTH).sum(-1, keepdim=True))).view(
            -1
        ),
    ),
    Operator(
        "product", lambda x: (x.view(-1, WIDTH) @ W).view(-1), lambda g, _y, _x: (g.view(-1, WIDTH) @ W.T).reshape(-1)
    ),
)


def planted(one: Operator, error: float) -> Fn:
    """The op with a relative error in one element of its gradient."""

    def backward(g: Any, y: Any, x: Any) -> tuple[Any]:
        made = one.backward(g, y, x).clone()
        made[made.numel() // 3] *= 1 + error
        return (made,)

    return op(one.forward, backward)


def by_karat(fn: Fn, x: Any) -> bool:
    return str(karat.gradcheck(fn, (x,), op="cost", seed=1).verdict) != "FAIL"


class SlowAfterAllError(Exception):
    """Fast mode has refused, and begins slow mode to say where: that would take hours at 10⁶ elements."""


def by_fast_mode(fn: Fn, x: Any) -> bool:
    calls = 0

    def few(value: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 20:
            raise SlowAfterAllError
        return fn(value)

    try:
        return by_torch(few, x, fast=True)
    except SlowAfterAllError:
        return False


def by_torch(fn: Fn, x: Any, *, fast: bool) -> bool:
    leaf = x.clone().requires_grad_()
    return bool(torch.autograd.gradcheck(fn, (leaf,), fast_mode=fast, raise_exception=False))


CHECKERS: tuple[tuple[str, Callable[[Fn, Any], bool]], ...] = (
    ("karat", by_karat),
    ("fast mode", by_fast_mode),
    ("slow mode", lambda fn, x: by_torch(fn, x, fast=False)),
)


def cost(check: Callable[[Fn, Any], bool], fn: Fn, x: Any) -> Cost:
    counting, calls = counted(fn)
    begin = time.perf_counter()
    accepted = check(counting, x)
    return Cost(calls["forward"], time.perf_counter() - begin, accepted)


def best(check: Callable[[Fn, Any], bool], fn: Fn, x: Any) -> Cost:
    """The quickest of three; one alone where a check takes long."""
    first = cost(check, fn, x)
    more = [cost(check, fn, x) for _ in range(2)] if first.seconds < 5 else []
    return min((first, *more), key=lambda one: one.seconds)


def once(fn: Fn, x: Any) -> float:
    """One forward and its backward, the best of five."""
    took = []
    for _ in range(5):
        begin = time.perf_counter()
        leaf = x.clone().requires_grad_()
        y = fn(leaf)
        y.backward(torch.ones_like(y))
        took.append(time.perf_counter() - begin)
    return min(took)


def smallest(check: Callable[[Fn, Any], bool], one: Operator, x: Any, steps: int = 8) -> float:
    """The smallest planted relative error that is refused, within a factor of two."""
    low, high = -15.0, 9.0
    if check(planted(one, 10**high), x):
        return math.inf
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if check(planted(one, 10**middle), x) else (low, middle)
    return float(10**high)


def measured(one: Operator, size: int, *, slow: int, detection: int) -> None:
    x = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(size))
    fn = planted(one, 0.0)
    base = once(fn, x)
    for name, check in CHECKERS:
        if name == "slow mode" and size > slow:
            continue
        took = best(check, fn, x)
        # Bisection is eight checks more.
        looked = size <= detection and took.seconds < 10
        seen = f"{smallest(check, one, x):.0e}" if looked else "–"
        print(
            f"| {one.name} | {size:,} | {name} | {took.forwards:,} | {took.seconds * 1000:.1f} "
            f"| {took.seconds / base:.0f} | {seen} | {'yes' if took.accepted else 'no'} |",
            flush=True,
        )


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--slow", type=int, default=1_000, help="the largest size for slow mode")
    words.add_argument("--detection", type=int, default=1_000_000)
    words.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    given = words.parse_args()
    warnings.simplefilter("ignore")
    print(
        "| op | elements | checker | forwards | ms | times one forward and backward "
        "| smallest error of one element seen | right one accepted |\n|---|---|---|---|---|---|---|---|"
    )
    for one in OPERATORS:
        for size in given.sizes:
            measured(one, size, slow=given.slow, detection=given.detection)
    return 0


if __name__ == "__main__":
    sys.exit(main())
