"""Compare two tensors: bits first, then the tolerance; all numbers, in memory that does not grow.

Blocks of both sides are read into the same buffers again and again, by several threads if both sides are seekable.
What is the same bit for bit is only searched for NaN and summed. Pairs that are not finite on both sides are counted,
and left out of differences, SQNR and cosine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from math import prod

import msgspec
import numpy as np

from karat.findings import Finding, fail
from karat.system.processes import available_cores
from karat.tensors.bits import Bits, per_element, work_dtype
from karat.tensors.blocks import Either, Hashing, TensorBlocks, find_damage, is_seekable, require_whole
from karat.tensors.comparison import Comparison, TensorNumbers, Tolerance, within
from karat.tensors.dtypes import Dtype, dtype_named, tolerance_for
from karat.tensors.kernels import CHUNK, Careful, Opaque, Quick, Whole, has_arithmetic
from karat.tensors.tally import Tally, index_of

READ = 2 << 20  # bytes of a side that are read at once
_PIECE = 1 << 15  # elements of what a quick kernel leaves to the careful one, which makes copies
_WORTH_A_THREAD = 8 << 20

Kernel = Callable[[Tally, Bits, Bits], None]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    expected: Either
    actual: Either
    dtype: Dtype
    other: Dtype
    tolerance: Tolerance
    elements: int
    chunk: int  # elements that a kernel sees at once
    read: int  # elements that are read at once, a multiple of `chunk`


def compare_tensors(  # noqa: PLR0913 - the options of a comparison
    name: str,
    expected: Either,
    actual: Either,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    threads: int | None = None,
    digests: tuple[str, str] | None = None,
    block: int = READ,
) -> Comparison:
    """Compare actual with expected.

    `digests`: the recorded sha256 of each side; they are checked on the way, and `Damaged` says which side is not what
    it was. Sides with the same recorded digest that are the same are not hashed: whether both were damaged alike is for
    `verify` to find out. `threads`: by default as many as there are processors, for tensors that are worth it.
    """
    tolerance = tolerance_for(expected.dtype, actual.dtype, rtol, atol, equal_nan=equal_nan)
    require_whole(expected, name, "expected")
    require_whole(actual, name, "actual")
    dtype, other = dtype_named(expected.dtype), dtype_named(actual.dtype)
    same_dtype, numeric = dtype.name == other.name, has_arithmetic(dtype) and has_arithmetic(other)
    findings: tuple[Finding, ...] = ()
    changes: list[tuple[str, object, object]] = []
    if not same_dtype and (check_dtype or not numeric):
        changes.append(("dtype", dtype.name, other.name))
    if expected.shape != actual.shape:
        changes.append(("shape", [*expected.shape], [*actual.shape]))
    for what, one, two in changes:
        message = f"{within(name)}expected the {what} {one}, found {two}"
        findings += (fail(f"{what}-changed", message, where=name, numbers={"expected": str(one), "actual": str(two)}),)
    result = Comparison(name=name, dtype=expected.dtype, shape=expected.shape, tolerance=tolerance, findings=findings)
    if dtype.kind == "opaque":
        result = msgspec.structs.replace(result, tolerance=None)
        tolerance = msgspec.structs.replace(tolerance, rtol=0.0, atol=0.0)
    packed = per_element(dtype.name)
    comparable = same_dtype or (numeric and packed == per_element(other.name))
    if expected.shape != actual.shape or not comparable:
        if digests is not None:
            find_damage(name, expected, actual, digests)
        return result
    # Partial sums are over as many elements, however much was read at once and by which thread.
    work = work_dtype(dtype.name) if same_dtype else None
    chunk = _PIECE if work is None else CHUNK // work.itemsize // packed
    if dtype.kind == "opaque":
        chunk = max(1, READ // max(1, dtype.itemsize))
    plan = Plan(
        expected=expected,
        actual=actual,
        dtype=dtype,
        other=other,
        tolerance=tolerance,
        elements=prod(expected.shape),
        chunk=chunk,
        read=max(1, block // (max(dtype.itemsize, other.itemsize, 1) * chunk)) * chunk,
    )
    tally = _tally(name, plan, threads, digests)
    # Packed types hold two numbers to an element, side by side.
    *outer, inner = expected.shape or (1,)
    shape = expected.shape if packed == 1 else (*outer, packed * inner)
    numbers = tally.numbers(shape, with_ulps=dtype.layout is not None and same_dtype)
    findings += tuple(mismatch_findings(name, tally, numbers, tolerance, shape))
    return msgspec.structs.replace(result, numbers=numbers, findings=findings)


def _tally(name: str, plan: Plan, threads: int | None, digests: tuple[str, str] | None) -> Tally:
    """Compare every element, on as many threads as are worth it, and the digests beside it."""
    if digests is not None and digests[0] != digests[1]:
        with Hashing(plan.expected, plan.actual) as hashing:
            tally = _compare_range(plan, 0, plan.elements, hashing)
        hashing.require(name, digests)
        return tally
    if not (is_seekable(plan.expected) and is_seekable(plan.actual)):
        threads = 1
    elif threads is None:
        threads = min(available_cores(), plan.elements * plan.dtype.itemsize // _WORTH_A_THREAD)
    # Contiguous ranges, one a thread; where they are cut changes nothing, because chunks stay chunks.
    threads, chunks = max(1, threads), -(-plan.elements // plan.chunk)
    cuts = [min(plan.elements, chunks * n // threads * plan.chunk) for n in range(threads + 1)]
    ranges = [(start, stop) for start, stop in itertools.pairwise(cuts) if stop > start]
    if len(ranges) <= 1:
        tally = _compare_range(plan, 0, plan.elements)
    else:
        tally = Tally()
        with ThreadPoolExecutor(len(ranges), thread_name_prefix="karat-compare") as pool:
            for future in [pool.submit(_compare_range, plan, *each) for each in ranges]:
                tally.include(future.result())
    if digests is not None and tally.bit_equal != tally.elements:
        # Both sides are said to be the same and are not: at least one is not what it was.
        find_damage(name, plan.expected, plan.actual, digests)
    return tally


def _compare_range(plan: Plan, start: int, stop: int, hashing: Hashing | None = None) -> Tally:
    tally = Tally(start * per_element(plan.dtype.name))
    size, other = plan.dtype.itemsize, plan.other.itemsize
    if not size or not other:
        tally.bit_equal = stop - start
        tally.count(stop - start, 0)
        return tally
    kernel = _kernel(plan, stop - start)
    buffers = 1 if hashing is None else Hashing.BUFFERS
    with (
        closing(TensorBlocks(plan.expected, plan.read * size, buffers)) as one,
        closing(TensorBlocks(plan.actual, plan.read * other, buffers)) as two,
        np.errstate(all="ignore"),
    ):
        for first in range(start, stop, plan.read):
            last = min(stop, first + plan.read)
            expected, actual = one.block(first * size, last * size), two.block(first * other, last * other)
            if hashing is not None:
                hashing.begin(expected, actual)
            for at in range(0, last - first, plan.chunk):
                to = at + plan.chunk
                kernel(tally, expected[at * size : to * size], actual[at * other : to * other])
    return tally


def _kernel(plan: Plan, elements: int) -> Kernel:
    """The quickest there is, with the careful one for the pieces that need it."""
    dtype = plan.dtype
    if not has_arithmetic(dtype):
        return Opaque(dtype, plan.tolerance).compare
    careful, work = Careful(dtype, plan.other, plan.tolerance), work_dtype(dtype.name)
    if dtype.name != plan.other.name:
        return careful.compare
    if work is None:
        return Whole(dtype, plan.tolerance).compare if dtype.kind == "int" else careful.compare
    quick, size = Quick(dtype, work, plan.tolerance, min(plan.chunk, elements)), dtype.itemsize * _PIECE

    def compare(tally: Tally, expected: Bits, actual: Bits) -> None:
        if quick.compare(tally, expected, actual):
            return
        for at in range(0, expected.size, size):
            pieces = expected[at : at + size], actual[at : at + size]
            if expected.size <= size or not quick.compare(tally, *pieces):
                careful.compare(tally, *pieces)

    return compare


def mismatch_findings(
    name: str, tally: Tally, numbers: TensorNumbers, tolerance: Tolerance, shape: tuple[int, ...]
) -> Iterator[Finding]:
    """What lies outside the tolerance, and apart from it what became NaN or infinite."""
    if tally.spoiled:
        first = list(index_of(tally.first_spoiled, shape))
        yield fail(
            "new-nan",
            f"{within(name)}expected finite numbers, found NaN or infinity in {tally.spoiled:,} of"
            f" {numbers.elements:,} elements where expected is finite; first at {first}",
            where=name,
            numbers={"count": tally.spoiled, "elements": numbers.elements, "first": str(first)},
        )
    if numbers.mismatches <= tally.spoiled:
        return
    first = list(numbers.first_mismatch or ())
    allowed = f"|Δ| <= {tolerance.atol:g} + {tolerance.rtol:g}·|expected|"
    if not tolerance.rtol and not tolerance.atol:
        allowed = "equal elements" if numbers.max_abs is None else "equal numbers"
    elif numbers.max_abs is None and not numbers.nan_expected and not numbers.inf_expected:
        allowed = "equal elements"
    details = ""
    if numbers.max_abs and numbers.max_abs_at is not None:
        sides = (numbers.max_expected, numbers.max_actual)
        one, two = ("none" if value is None else f"{value:.9g}" for value in sides)
        details = f"; worst at {list(numbers.max_abs_at)}: expected {one}, found {two} (|Δ| {numbers.max_abs:.6g})"
    if numbers.nan_expected and numbers.nan_actual and not tolerance.equal_nan:
        both = f"{numbers.nan_expected:,} expected, {numbers.nan_actual:,} actual"
        details += f"; NaN: {both}, and NaN equals nothing without equal_nan"
    yield fail(
        "tensor-mismatch",
        f"{within(name)}expected {allowed}, found {numbers.mismatches:,} of {numbers.elements:,} elements outside;"
        f" first at {first}{details}",
        where=name,
        numbers={
            "mismatches": numbers.mismatches,
            "elements": numbers.elements,
            "first": str(first),
            "max_abs": numbers.max_abs,
            "max_rel": numbers.max_rel,
            "max_ulp": numbers.max_ulp,
        },
    )
