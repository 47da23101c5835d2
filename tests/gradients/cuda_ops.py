"""Ops on a CUDA device, checked there: a Triton layer norm, an atomic scatter, a jax window; right, and with planted bugs.

Runs alone, on a machine that has no more than numpy, msgspec, torch and triton (jax, where it sees a GPU, too):
`PYTHONPATH=src:tests python tests/gradients/cuda_ops.py`. pytest runs it through test_cuda_ops.py; what has no
Triton kernel in it runs on the CPU as well.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from karat import gradcheck
from karat.gradients.report import GradReport

SEED = 5
ROUNDING = 1e-9
"""How far two runs of a float64 scatter with atomics may be apart: 20,000 additions in any order."""


class Planted(NamedTuple):
    """An op as it should be or with a bug, and what a check must say of it."""

    name: str
    verdict: str
    fn: Callable[..., Any]
    inputs: tuple[Any, ...]
    options: dict[str, Any]


def triton_ops(torch: Any, device: str) -> Iterator[Planted]:
    """A layer norm whose rows are longer than one block of the kernel."""
    from factories.triton_layer_norm import NO_MEAN_TERM, RIGHT, SECOND_BLOCK, layer_norm

    random = torch.Generator().manual_seed(SEED)
    x = torch.randn(3, 1500, dtype=torch.float64, generator=random).to(device)
    w = torch.randn(1500, dtype=torch.float64, generator=random).to(device)
    low: dict[str, Any] = {"dtypes": ("float32", "bfloat16")}
    yield Planted("triton layer norm", "PASS", layer_norm(RIGHT), (x, w), low)
    for name, bug in (
        ("triton layer norm without its mean term", NO_MEAN_TERM),
        ("triton layer norm, wrong past column 1024", SECOND_BLOCK),
    ):
        yield Planted(name, "FAIL", layer_norm(bug), (x, w), {})


def taking(torch: Any, index: Any, *, overwrite: bool) -> Callable[..., Any]:
    """Rows taken by index; the backward adds them up with atomics, or overwrites."""

    class Take(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            ctx.rows = inputs[0].shape[0]
            return inputs[0][index]

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            g = cotangents[0]
            made = torch.zeros((ctx.rows, *g.shape[1:]), dtype=g.dtype, device=g.device)
            if overwrite:
                made[index] = g
                return made
            return made.index_add_(0, index, g)

    def fn(x: Any) -> Any:
        return Take.apply(x)

    return fn


def scatter_ops(torch: Any, device: str) -> Iterator[Planted]:
    """20,000 rows of which four are distinct: additions in an order that no run repeats."""
    random = torch.Generator().manual_seed(SEED)
    x = torch.randn(4, 3, dtype=torch.float64, generator=random).to(device)
    index = torch.randint(0, 4, (20_000,), generator=random).to(device)
    bound: dict[str, Any] = {"nondeterminism_bound": ROUNDING}
    yield Planted("atomic scatter, with a bound", "PASS", taking(torch, index, overwrite=False), (x,), bound)
    yield Planted("scatter that overwrites", "FAIL", taking(torch, index, overwrite=True), (x,), bound)
    if device != "cpu":
        atomic = taking(torch, index, overwrite=False)
        yield Planted("atomic scatter, without one", "PASS", atomic, (x,), {})
        yield Planted("atomic scatter, said to be deterministic", "FAIL", atomic, (x,), {"strict": True})


def window(jax: Any, shift: int) -> Callable[..., Any]:
    """A moving mean of three; its backward's window may be off."""
    jnp = jax.numpy

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def fn(x: Any) -> Any:
        return (x[:-2] + x[1:-1] + x[2:]) / 3

    def back(_saved: Any, g: Any) -> Any:
        padded = jnp.pad(g, 2) / 3
        return (jnp.roll(padded[:-2] + padded[1:-1] + padded[2:], shift),)

    fn.defvjp(lambda x: (fn(x), None), back)

    def moving_mean(x: Any) -> Any:
        return fn(jax.numpy.sin(x))

    return moving_mean


def jax_ops(jax: Any, device: str) -> Iterator[Planted]:
    """A window over 10,000 numbers, by jax on its own device."""
    platform = "cpu" if device == "cpu" else "gpu"
    with jax.enable_x64(True):
        key = jax.random.key(SEED)
        x = jax.random.normal(key, (10_000,), dtype="float64")
        x = jax.device_put(x, jax.devices(platform)[0])
    yield Planted("jax moving mean", "PASS", window(jax, 0), (x,), {"dtypes": ("float32",)})
    yield Planted("jax moving mean, off by one", "FAIL", window(jax, 1), (x,), {})


def check(one: Planted) -> GradReport:
    """karat's report of it."""
    report: GradReport = gradcheck(one.fn, one.inputs, op=one.name, seed=SEED, **one.options)
    return report


def told(one: Planted, report: GradReport) -> str:
    """A few lines of what the check said."""
    cost = f"{report.forwards} forwards, {report.backwards} backwards, {report.seconds:.2f} s"
    lines = [
        f"{one.name}: {report.verdict} (expected {one.verdict}) on {report.device}, {cost}",
        f"    {report.reason}",
    ]
    lines += [
        f"    {c.output} by {c.input} in {c.dtype}: held; smallest error of an element that it sees {c.smallest_error:.1e}"
        for c in report.comparisons
        if c.counts
    ]
    lines += [
        f"    {d.input} → {d.output}, {d.dtype}: at {d.coordinate}, expected {d.expected}, found {d.found}; {d.hint}"
        for d in report.diagnoses
    ]
    lines += [
        f"    {p.name}: {p.verdict}, measured {p.measured}, bound {p.bound}"
        for p in report.properties
        if p.name == "deterministic-backward" or p.verdict == "FAIL"
    ]
    return "\n".join(lines)


def library(frameworks: tuple[str, ...], device: str) -> int:
    """The library's pairs on the device: how many were misjudged."""
    from factories.wrong_backwards.judging import inconclusive, judge_all, misjudged
    from factories.wrong_backwards.pair import MODULES, framework_of, pairs_of

    bad = 0
    for name in frameworks:
        pairs = [p for m in MODULES if framework_of(m) == name for p in pairs_of(m)]
        results = judge_all(pairs, [0], device=device)
        odd, unsure = misjudged(results), inconclusive(results)
        print(
            f"library, {name} on {device}: {len(pairs)} wrong and {len(pairs)} right; misjudged {len(odd)}, "
            f"inconclusive {len(unsure)}, {sum(one.seconds for one in results):.1f} s"
        )
        print("".join(f"    {line}\n" for line in (*odd, *unsure)), end="")
        bad += len(odd)
    return bad


def jax_with(device: str) -> Any | None:
    """jax where it is and sees the kind of device; else None."""
    if importlib.util.find_spec("jax") is None:
        return None
    import jax

    try:
        jax.devices("cpu" if device == "cpu" else "gpu")
    except RuntimeError:
        return None
    return jax


def ops(torch: Any, jax: Any | None, device: str) -> Iterator[Planted]:
    """All that can run on the device."""
    if device != "cpu":
        yield from triton_ops(torch, device)
    yield from scatter_ops(torch, device)
    if jax is not None:
        yield from jax_ops(jax, device)


def main() -> int:
    """Runs all of it, and says on what."""
    import torch

    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    said = torch.cuda.get_device_name(0) if device != "cpu" else "no CUDA device; the CPU instead"
    jax = jax_with(device)
    print(f"torch {torch.__version__} on {said}; jax {jax.__version__ if jax else 'not there'}")
    bad = 0
    for one in ops(torch, jax, device):
        report = check(one)
        print(told(one, report), flush=True)
        bad += str(report.verdict) != one.verdict
    bad += library(("torch", "jax") if jax is not None else ("torch",), device)
    print(f"{bad} not as expected")
    return 1 if bad or device == "cpu" else 0


if __name__ == "__main__":
    sys.exit(main())
