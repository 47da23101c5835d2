"""The sweep of `on_device` as one Triton kernel, for pairs of float32, float16 or bfloat16 on a CUDA device.

A program takes a row in steps that fit its registers, holds what it found per lane, and reduces once at the end: a
generated kernel reduces thirteen numbers at every step. The largest quotient is found by products, since dividing doubles
takes longer than reading them. Imported when it is used: Triton comes with torch for CUDA, and with no other.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

KINDS = {"float32": tl.float32, "float16": tl.float16, "bfloat16": tl.bfloat16}
_STEP, _WARPS, _STAGES = 256, 2, 5  # Of those tried on an H200 the quickest.


@triton.jit  # type: ignore[untyped-decorator]  # of a package that CI does not have
def _rows(  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917 - what a kernel is given
    expected,
    actual,
    counts,
    steps,
    floats,
    rows,
    limits,
    kind: tl.constexpr,
    bits: tl.constexpr,
    width: tl.constexpr,
    step: tl.constexpr,
    stages: tl.constexpr,
):
    least: tl.constexpr = -(1 << (bits - 1))
    rtol, atol = tl.load(limits), tl.load(limits + 1)  # a number given to a kernel has 32 bits
    row = tl.program_id(0).to(tl.int64)
    at = row * width + tl.arange(0, step)
    same = tl.zeros([step], tl.int32)
    wrong = tl.zeros([step], tl.int32)
    apart = tl.zeros([step], tl.uint32)
    nothing = tl.zeros([step], tl.float64)
    largest, above, below = nothing - 1.0, nothing - 1.0, nothing + 1.0
    size_sum, ee, aa, ea, ed, dd = nothing, nothing, nothing, nothing, nothing, nothing
    for start in tl.range(0, width, step, num_stages=stages):
        one, other = tl.load(expected + at + start), tl.load(actual + at + start)
        x = one.to(kind, bitcast=True).to(tl.float32).to(tl.float64)
        y = other.to(kind, bitcast=True).to(tl.float32).to(tl.float64)
        d, base = y - x, tl.abs(x)
        size = tl.abs(d)
        same += (one == other).to(tl.int32)
        wrong += (size > atol + rtol * base).to(tl.int32)
        one, other = one.to(tl.int32), other.to(tl.int32)
        one, other = tl.where(one < 0, least - one, one), tl.where(other < 0, least - other, other)
        apart = tl.maximum(apart, (tl.maximum(one, other) - tl.minimum(one, other)).to(tl.uint32, bitcast=True))
        largest = tl.maximum(largest, size)
        more = (size * below > above * base) & (base > 0)
        above, below = tl.where(more, size, above), tl.where(more, base, below)
        size_sum += size
        ee += x * x
        aa += y * y
        ea += x * y
        ed += x * d
        dd += d * d
    tl.store(counts + row, tl.sum(same).to(tl.int64))
    tl.store(counts + rows + row, tl.sum(wrong).to(tl.int64))
    most = tl.max(apart).to(tl.int64)
    tl.store(steps + row, most + least if bits == 32 else most)  # as `on_device` has them
    tl.store(floats + row, tl.max(largest))
    tl.store(floats + rows + row, tl.max(above / below))
    tl.store(floats + 2 * rows + row, tl.sum(size_sum))
    tl.store(floats + 3 * rows + row, tl.sum(ee))
    tl.store(floats + 4 * rows + row, tl.sum(aa))
    tl.store(floats + 5 * rows + row, tl.sum(ea))
    tl.store(floats + 6 * rows + row, tl.sum(ed))
    tl.store(floats + 7 * rows + row, tl.sum(dd))


def sweep(expected: Any, actual: Any, rtol: float, atol: float, *, name: str) -> tuple[Any, Any, Any]:
    """What `on_device.sweep` gives for two tensors of rows."""
    rows, width = expected.shape
    counts, steps = (torch.empty(shape, dtype=torch.int64, device=expected.device) for shape in ((2, rows), (rows,)))
    floats = torch.empty((8, rows), dtype=torch.float64, device=expected.device)
    limits = torch.tensor([rtol, atol], dtype=torch.float64, device=expected.device)
    fixed = {
        "kind": KINDS[name],
        "bits": KINDS[name].primitive_bitwidth,
        "width": width,
        "step": _STEP,
        "stages": _STAGES,
    }
    _rows[(rows,)](expected, actual, counts, steps, floats, rows, limits, **fixed, num_warps=_WARPS)
    return counts, steps, floats
