"""The library of wrong backwards, judged by karat, by torch.autograd.gradcheck and by jax.test_util.check_grads.

Each checker judges the pairs of its own framework, and karat's line on the same pairs stands beneath it. All get the
same double-precision inputs; a pair about second derivatives or forward mode is checked for these by all (gradgradcheck,
check_forward_ad, order=2). Caught: the wrong twin was refused, by whatever error. False alarm: the right one was.
Forwards are calls of the function, counted from outside. With --seeds 50 (`make soak`) karat judges every pair at 50
points. Run: make bench-gradients
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from factories.wrong_backwards.judging import counted, judge
from factories.wrong_backwards.pair import MODULES, Case, Pair, framework_of, pairs_of

CHUNK = 5
Accepts = Callable[[Case, Callable[..., Any]], bool]


class Line(NamedTuple):
    """What one checker made of one twin."""

    name: str
    wrong: bool
    verdict: str
    forwards: int
    seconds: float


def torch_accepts(case: Case, fn: Callable[..., Any], *, fast: bool) -> bool:
    from torch.autograd import gradcheck, gradgradcheck

    inputs = tuple(x.clone().requires_grad_() for x in case.inputs)
    forward = "modes" in case.options
    accepted = gradcheck(fn, inputs, fast_mode=fast, check_forward_ad=forward)
    if case.options.get("order", 1) > 1:
        accepted = accepted and gradgradcheck(fn, inputs, fast_mode=fast)
    return bool(accepted)


def jax_accepts(case: Case, fn: Callable[..., Any]) -> bool:
    import jax
    from jax.test_util import check_grads

    modes = ("fwd", "rev") if "modes" in case.options else ("rev",)
    with jax.enable_x64(True):
        check_grads(fn, case.inputs, order=case.options.get("order", 1), modes=modes)
    return True


def other(accepts: Accepts, pair: Pair, *, wrong: bool, seed: int) -> Line:
    case = pair.case(wrong=wrong, seed=seed)
    fn, calls = counted(case.fn)
    begin = time.perf_counter()
    try:
        verdict = "PASS" if accepts(case, fn) else "FAIL"
    except Exception:  # noqa: BLE001 - whatever a checker says no with
        verdict = "FAIL"
    return Line(pair.name, wrong, verdict, calls["forward"], time.perf_counter() - begin)


def ours(pair: Pair, *, wrong: bool, seed: int) -> Line:
    one = judge(pair, wrong=wrong, seed=seed)
    return Line(pair.name, wrong, str(one.report.verdict), one.forwards, one.seconds)


def lines(check: Callable[..., Line], pairs: Iterable[Pair], seeds: Sequence[int]) -> list[Line]:
    return [check(pair, wrong=wrong, seed=seed) for pair in pairs for wrong in (True, False) for seed in seeds]


def row(title: str, found: Sequence[Line]) -> str:
    wrong = [one for one in found if one.wrong]
    right = [one for one in found if not one.wrong]
    caught = sum(one.verdict == "FAIL" for one in wrong)
    false = sum(one.verdict == "FAIL" for one in right)
    unsure = sum(one.verdict == "INCONCLUSIVE" for one in right)
    small = [one for one in found if "100,000" not in one.name]
    return (
        f"| {title} | {caught} of {len(wrong)} | {len(wrong) - caught} | {false} of {len(right)} | {unsure} "
        f"| {median(one.forwards for one in small):.0f} | {max(one.forwards for one in found):,} "
        f"| {1000 * median(one.seconds for one in small):.1f} | {sum(one.seconds for one in found):.1f} |"
    )


HEAD = (
    "| checker | caught | missed | false alarms | inconclusive | forwards, median | forwards, most "
    "| ms, median | seconds in all |\n|---|---|---|---|---|---|---|---|---|"
)


def small_enough(pairs: Iterable[Pair]) -> list[Pair]:
    """Those whose Jacobian slow mode can hold: with 100,000 elements it would be 80 GB."""
    return [pair for pair in pairs if "100,000" not in pair.name]


def missed(found: Iterable[Line]) -> list[str]:
    wrong_way = (one for one in found if (one.verdict == "FAIL") != one.wrong)
    return sorted({f"{'missed' if one.wrong else 'false alarm'}: {one.name}" for one in wrong_way})


def compare(names: bool) -> None:  # noqa: FBT001 - a flag of the command line
    torch_pairs = [p for m in MODULES if framework_of(m) == "torch" for p in pairs_of(m)]
    jax_pairs = [p for m in MODULES if framework_of(m) == "jax" for p in pairs_of(m)]
    slow = functools.partial(other, functools.partial(torch_accepts, fast=False))
    fast = functools.partial(other, functools.partial(torch_accepts, fast=True))
    check_grads = functools.partial(other, jax_accepts)
    print(HEAD)
    for title, check, pairs in (
        ("torch gradcheck, slow mode", slow, small_enough(torch_pairs)),
        ("karat, the same pairs", ours, small_enough(torch_pairs)),
        ("torch gradcheck, fast mode", fast, torch_pairs),
        ("karat, the same pairs", ours, torch_pairs),
        ("jax check_grads", check_grads, jax_pairs),
        ("karat, the same pairs", ours, jax_pairs),
    ):
        found = lines(check, pairs, [0])
        print(row(title, found), flush=True)
        if names:
            print("\n".join(f"    {line}" for line in missed(found)))


def part(module: str, seeds: Sequence[int]) -> None:
    """The lines of one module, for the process that started this one."""
    for one in lines(ours, pairs_of(module), seeds):
        print(*one[1:], one.name, sep="\t", flush=True)


def read(text: str) -> list[Line]:
    made = []
    for text_line in text.splitlines():
        wrong, verdict, forwards, seconds, name = text_line.split("\t")
        made.append(Line(name, wrong == "True", verdict, int(forwards), float(seconds)))
    return made


def part_elsewhere(module: str, first: int, count: int) -> tuple[str, list[Line]]:
    words = [sys.executable, __file__, "--module", module, "--first", str(first)]
    # One thread each: the tensors are small, and threads that wait for each other cost more.
    done = subprocess.run(
        [*words, "--seeds", str(count)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return module, read(done.stdout)


def soak(seeds: int, *, jobs: int) -> int:
    """Every pair at many points; parts in processes of their own, as many at a time as there are cores."""
    there = [m for m in MODULES if importlib.util.find_spec(framework_of(m)) is not None]
    parts = [(module, first, min(CHUNK, seeds - first)) for first in range(0, seeds, CHUNK) for module in there]
    found: dict[str, list[Line]] = {}
    with ThreadPoolExecutor(jobs) as pool:
        for module, made in pool.map(lambda one: part_elsewhere(*one), parts):
            found.setdefault(module, []).extend(made)
    return told(found, seeds)


def told(found: dict[str, list[Line]], seeds: int) -> int:
    print(f"karat over {seeds} seeds\n\n{HEAD}")
    for name in dict.fromkeys(map(framework_of, MODULES)):
        of_it = [one for m, made in found.items() if framework_of(m) == name for one in made]
        print(row(f"karat, {name}", of_it) if of_it else f"| karat, {name}: not installed |")
    everything = [one for made in found.values() for one in made]
    print(row("karat, all", everything))
    print("\n".join(["", *missed(everything)]))
    unsure = sorted({one.name for one in everything if one.verdict == "INCONCLUSIVE"})
    print("\n".join(f"inconclusive: {name}" for name in unsure))
    return int(bool(missed(everything)))


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seeds", type=int, default=0, help="karat alone, at so many points")
    words.add_argument("--module", help="one module's lines alone")
    words.add_argument("--first", type=int, default=0, help="the first of these points")
    words.add_argument("--names", action="store_true", help="name what was missed")
    words.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = words.parse_args()
    warnings.simplefilter("ignore")
    if given.module:
        part(given.module, range(given.first, given.first + given.seeds))
    elif given.seeds:
        return soak(given.seeds, jobs=given.jobs)
    else:
        compare(given.names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
