"""Kernels for float16 and bfloat16 alone, on a CUDA device, held against float64 references: right, and five per cent off.

Triton's softmax and matrix product with backwards by hand, torch's flash attention, a compiled twin. Runs alone, on a
machine that has no more than numpy, msgspec, torch and triton:
`PYTHONPATH=src:tests python tests/gradients/cuda_kernels.py`. Without a device the CPU runs an emulated flash attention.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from factories.kernels import attention, flash
from karat import gradcheck
from karat.gradients.report import GradReport

ALL, FEW = slice(None), slice(3, 5)


class Kernel(NamedTuple):
    name: str
    fn: Callable[..., Any]
    reference: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]
    large: bool = False  # then a few cases are enough


class Case(NamedTuple):
    """A kernel as it is or with a planted error, in one precision, and what a check must say of it."""

    name: str
    dtype: str
    verdict: str
    kernel: Kernel
    wrong: str = ""
    rows: slice = ALL

    @property
    def planted(self) -> str:
        where = "" if self.rows == ALL else " in two rows"
        return f"{self.wrong} 5% off{where}" if self.wrong else "right"


def tampered(torch: Any, case: Case) -> Callable[..., Any]:
    """The kernel with one output or one input's gradient five per cent off, in some rows."""

    def off(one: Any) -> Any:
        changed = one.clone()
        changed[..., case.rows, :] *= 1.05
        return changed

    class Backward(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(_ctx: Any, *inputs: Any) -> Any:
            return inputs[0].view_as(inputs[0])

        @staticmethod
        def backward(_ctx: Any, *cotangents: Any) -> Any:
            return off(cotangents[0])

    def fn(*inputs: Any) -> Any:
        pairs = zip(inputs, case.kernel.names, strict=True)
        out = case.kernel.fn(*(Backward.apply(one) if name == case.wrong else one for one, name in pairs))
        return out + (off(out) - out).detach() if case.wrong == "out" else out

    return fn


def flash_of_torch(torch: Any) -> Callable[..., Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def fn(q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return fn


def kernels(torch: Any, device: str) -> Iterator[Kernel]:
    if device == "cpu":
        yield Kernel("emulated flash attention", flash(torch), attention(torch), ((1, 2, 48, 32),) * 3, ("q", "k", "v"))
        return
    from factories.triton_kernels import Product, Softmax

    yield Kernel("triton softmax", Softmax.apply, lambda x: torch.softmax(x, -1), ((64, 200),), ("x",))
    yield Kernel("triton product", Product.apply, lambda a, b: a @ b, ((96, 160), (160, 64)), ("a", "b"))
    for shape in ((1, 2, 128, 64), (2, 4, 512, 64)):
        name = f"flash attention {shape[2]}"
        large = shape[2] > 128
        yield Kernel(name, flash_of_torch(torch), attention(torch), (shape,) * 3, ("q", "k", "v"), large)


def cases(torch: Any, device: str) -> Iterator[Case]:
    for kernel in kernels(torch, device):
        for dtype in ("bfloat16",) if kernel.large else ("bfloat16", "float16"):
            yield Case(kernel.name, dtype, "PASS", kernel)
            for wrong in ("k",) if kernel.large else ("out", *kernel.names):
                for rows in (ALL, FEW):
                    yield Case(kernel.name, dtype, "FAIL", kernel, wrong, rows)


def check(torch: Any, case: Case, device: str) -> GradReport:
    random = torch.Generator().manual_seed(5)
    made = [torch.randn(shape, generator=random) for shape in case.kernel.shapes]
    inputs = tuple(one.to(device, getattr(torch, case.dtype)) for one in made)
    report: GradReport = gradcheck(
        tampered(torch, case) if case.wrong else case.kernel.fn,
        inputs,
        op=case.name,
        names=case.kernel.names,
        reference=case.kernel.reference,
    )
    return report


def compiled(torch: Any, device: str) -> GradReport:
    """A function and what inductor makes of it."""

    def fn(x: Any) -> Any:
        return torch.nn.functional.gelu(x).softmax(-1)

    x = torch.randn(64, 100, generator=torch.Generator().manual_seed(5)).to(device)
    report: GradReport = gradcheck(fn, (x,), op="compiled", twins={"inductor": torch.compile(fn)})
    return report


def main() -> int:
    import torch

    warnings.simplefilter("ignore")  # torch says at length which kernels it does not take
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    said = torch.cuda.get_device_name(0) if device != "cpu" else "no CUDA device; the CPU instead"
    print(f"torch {torch.__version__} on {said}")
    bad = 0
    for case in cases(torch, device):
        report = check(torch, case, device)
        right = str(report.verdict) == case.verdict
        bad += not right
        mark = "" if right else f"  <- expected {case.verdict}"
        line = f"{case.name:<22} {case.dtype:<9} {case.planted:<22} {report.verdict:<12} {report.seconds:5.2f} s{mark}"
        print(f"{line}\n    {report.reason}", flush=True)
    started = time.perf_counter()
    report = compiled(torch, device)
    twin = next(one for one in report.properties if one.name == "twin inductor")
    print(f"compiled twin: {report.verdict}, {twin.verdict} {twin.detail} {time.perf_counter() - started:.1f} s")
    bad += str(report.verdict) != "PASS" or str(twin.verdict) != "PASS"
    print(f"{bad} not as expected")
    return 1 if bad or device == "cpu" else 0


if __name__ == "__main__":
    sys.exit(main())
