"""Compare two tensors: bits first, then the tolerance; all numbers, in memory that does not grow.

Blocks of both sides are read into the same buffers again and again, by several threads if both sides are seekable.
What is the same bit for bit is only searched for NaN and summed. Pairs that are not finite on both sides are counted,
and left out of differences, SQNR and cosine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from math import prod

import msgspec
import numpy as np

from karat.findings import Finding, fail
from karat.system.processes import available_cores
from karat.tensors.bits import Bits, Either, TensorBlocks, is_seekable, per_element, require_whole, work_dtype
from karat.tensors.comparison import Comparison, TensorNumbers, Tolerance, within
from karat.tensors.device.on_device import DeviceTensor, compare_on_device
from karat.tensors.digests import PIECE, Hash, TensorDigest, digest_of, hash_of
from karat.tensors.dtypes import Dtype, dtype_named, tolerance_for
from karat.tensors.kernels import CHUNK, Careful, Opaque, Quick, Whole, has_arithmetic
from karat.tensors.tally import Tally, index_of
from karat.tensors.tensor import Damaged

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
    integers: bool = False,
    equal_nan: bool = False,
    check_dtype: bool = True,
    threads: int | None = None,
    digests: tuple[str, str] | None = None,
    block: int = READ,
) -> Comparison:
    """Compare actual with expected.

    `digests`: the recorded digest of each side; they are checked on the way, and `Damaged` says which side is not what
    it was. Of sides with the same recorded digest one is hashed: the other has the same bits. `threads`: by default as many as there are processors, for tensors that are worth it.
    """
    tolerance = tolerance_for(expected.dtype, actual.dtype, rtol, atol, equal_nan=equal_nan, integers=integers)
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
        _require(name, (expected, actual), digests or ())
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
    tally = None
    if isinstance(expected, DeviceTensor) and isinstance(actual, DeviceTensor) and same_dtype and digests is None:
        tally = compare_on_device(expected, actual, dtype, tolerance)
    tally = tally or _tally(name, plan, threads, digests)
    # Packed types hold two numbers to an element, side by side.
    *outer, inner = expected.shape or (1,)
    shape = expected.shape if packed == 1 else (*outer, packed * inner)
    numbers = tally.numbers(shape, with_ulps=dtype.layout is not None and same_dtype)
    findings += tuple(mismatch_findings(name, tally, numbers, tolerance, shape))
    return msgspec.structs.replace(result, numbers=numbers, findings=findings)


def _tally(name: str, plan: Plan, threads: int | None, digests: tuple[str, str] | None) -> Tally:
    """Compare every element, on as many threads as are worth it, and hash it on the way."""
    sides, size = (plan.expected, plan.actual), plan.dtype.itemsize
    if not (is_seekable(plan.expected) and is_seekable(plan.actual)):
        threads = 1
    elif threads is None:
        threads = min(available_cores(), plan.elements * size // _WORTH_A_THREAD)
    threads = max(1, threads)
    asked = range(0 if digests is None else 1 if digests[0] == digests[1] else 2)
    # What is hashed in pieces is hashed by whoever compares them; anything else needs all elements in order.
    in_pieces = size == plan.other.itemsize and size > 0 and not PIECE % (plan.chunk * size)
    kinds = [hash_of(digest) for digest in digests or ()]
    beside = [n for n in asked if threads > 1 and not (in_pieces and kinds[n] == "blake3")]
    within_range = {n: kinds[n] for n in asked if n not in beside}
    # Contiguous ranges, one a thread; where they are cut changes nothing, because chunks stay chunks.
    unit = PIECE // size if within_range and in_pieces else plan.chunk
    units = -(-plan.elements // unit)
    cuts = [min(plan.elements, units * n // threads * unit) for n in range(threads + 1)]
    ranges = [(start, stop) for start, stop in itertools.pairwise(cuts) if stop > start] or [(0, 0)]
    tally = Tally()
    with ThreadPoolExecutor(len(ranges) + len(beside), thread_name_prefix="karat-compare") as pool:
        whole = {n: pool.submit(digest_of, sides[n], kinds[n]) for n in beside}
        run = pool.map if len(ranges) > 1 else map
        parts = [*run(lambda each: _compare_range(plan, each[0], each[1], within_range), ranges)]
        found = {n: future.result() for n, future in whole.items()}
    for part, _ in parts:
        tally.include(part)
    for n in within_range:
        pieces = (piece for _, hashed in parts for piece in hashed[n].pieces())
        found[n] = parts[0][1][n].text(pieces)
    if digests is not None and (tally.bit_equal != tally.elements or len(asked) > 1 or found[0] != digests[0]):
        # Of sides that are said to be the same and are not, at least one is not what it was.
        _require(name, sides, digests, found)
    return tally


def _require(
    name: str, sides: Sequence[Either], digests: Sequence[str], known: Mapping[int, str] | None = None
) -> None:
    """`Damaged` unless the sides have their recorded digests; those that are not known yet are computed."""
    found = {n: digest_of(sides[n], hash_of(said)) for n, said in enumerate(digests) if n not in (known or {})}
    found |= known or {}
    wrong = [
        f"expected the digest {said} on the {('expected', 'actual')[n]} side, found {found[n]}"
        for n, said in enumerate(digests)
        if found[n] != said
    ]
    if wrong:
        raise Damaged(f"{within(name)}{' and '.join(wrong)}")


def _compare_range(
    plan: Plan, start: int, stop: int, kinds: Mapping[int, Hash]
) -> tuple[Tally, dict[int, TensorDigest]]:
    """Compare some elements, and hash those of the sides that `kinds` names."""
    tally = Tally(start * per_element(plan.dtype.name))
    sides, size, other = (plan.expected, plan.actual), plan.dtype.itemsize, plan.other.itemsize
    hashed = {n: TensorDigest(sides[n].dtype, sides[n].shape, kind) for n, kind in kinds.items()}
    if not size or not other:
        tally.bit_equal = stop - start
        tally.count(stop - start, 0)
        return tally, hashed
    kernel = _kernel(plan, stop - start)
    with (
        closing(TensorBlocks(plan.expected, plan.read * size)) as one,
        closing(TensorBlocks(plan.actual, plan.read * other)) as two,
        np.errstate(all="ignore"),
    ):
        for first in range(start, stop, plan.read):
            last = min(stop, first + plan.read)
            blocks = one.block(first * size, last * size), two.block(first * other, last * other)
            for n, digest in hashed.items():
                digest.update(blocks[n].data)
            expected, actual = blocks
            for at in range(0, last - first, plan.chunk):
                to = at + plan.chunk
                kernel(tally, expected[at * size : to * size], actual[at * other : to * other])
    return tally, hashed


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
    allowed = "equal elements"
    if tolerance.rtol or tolerance.atol:
        allowed = f"|Δ| <= {tolerance.atol:g} + {tolerance.rtol:g}·|expected|"
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
