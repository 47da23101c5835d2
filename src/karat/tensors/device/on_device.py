"""Tensors that lie on a device: compared, measured and read there, so that only what is kept travels to the host.

A `DeviceTensor` is a `Tensor` whose bytes come to the host when somebody asks for them. Two of them are compared in one
pass over their memory: `sweep` has every number of rows of `ROW` elements, in float64, and is one kernel: Triton's
(`triton_sweep.py`), or what torch.compile makes of it. It is compiled once enough was swept to be worth the wait; before that, and where torch
cannot compile, it runs operation by operation and gives the same numbers. Rows that are not finite are swept again, with
care. Where the worst element of a row is, and what it is, says the host's own kernel, which is the reference.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from math import inf, sqrt
from typing import Any, NamedTuple

import msgspec
import numpy as np

from karat.tensors.bits import Bits
from karat.tensors.comparison import Statistics, Tolerance
from karat.tensors.dtypes import Dtype
from karat.tensors.kernels import Careful
from karat.tensors.tally import Tally
from karat.tensors.tensor import Tensor

ROW = 1 << 14
_SMALLEST = 1 << 20  # Bytes; what is smaller is on the host in no time.
_WORTH_COMPILING = 4 << 30  # Bytes that this process has swept; compiling takes seconds.
_PIECE, _COMPILED_PIECE = 1 << 22, 1 << 28  # Elements: temporaries are float64, and indices have 32 bits.
_SUMS = ("sum_abs", "ee", "aa", "ea", "ed", "dd")
_ODD = ("nan_expected", "nan_actual", "inf_expected", "inf_actual", "spoiled", "pairs")
_NAMES = {"bool", "int8", "uint8", "int16", "int32", "float64", "float32", "float16", "bfloat16"}
_LEAST_SQUARE = 1e-200  # A sum of float64's squares below this may have lost some.
_swept = [0]


class DeviceTensor(Tensor, frozen=True, kw_only=True, eq=False):
    """Elements in C order on a device; `data` brings them to the host, once."""

    value: Any  # A flat tensor of torch, of integers as wide as an element.
    held: list[memoryview] = msgspec.field(default_factory=list)

    @property  # type: ignore[misc]  # the field stays empty
    def data(self) -> memoryview:
        if not self.held:
            self.held.append(self.value.cpu().numpy().view(np.uint8).data)
        return self.held[0]

    @property
    def size(self) -> int:
        return int(self.value.nbytes)

    def sample(self, step: int, itemsize: int) -> Bits:
        """Every so manieth element."""
        rows = self.value.view(sys.modules["torch"].uint8).view(-1, itemsize)[::step]
        return np.asarray(rows.contiguous().cpu().numpy().reshape(-1))

    def reader(self, block: int) -> Callable[[int, int], Bits]:
        """Through pinned memory, on a stream of its own."""
        torch, elements = sys.modules["torch"], self.value.view(sys.modules["torch"].uint8)
        buffer = torch.empty(min(block, self.size), dtype=torch.uint8, pin_memory=elements.is_cuda)
        stream = torch.cuda.Stream(elements.device) if elements.is_cuda else None

        def read(start: int, stop: int) -> Bits:
            found = buffer[: stop - start]
            with torch.cuda.stream(stream):
                found.copy_(elements[start:stop], non_blocking=True)
            if stream is not None:
                stream.synchronize()
            return np.asarray(found.numpy())

        return read


def stays(value: Any) -> bool:
    """Whether it is worth its while to leave a tensor of torch where it lies."""
    return bool(value.device.type == "cuda" and value.nbytes >= _SMALLEST)


def compare_on_device(
    expected: DeviceTensor, actual: DeviceTensor, dtype: Dtype, tolerance: Tolerance, *, compiled: bool | None = None
) -> Tally | None:
    """All numbers; None for what the host is to do. `compiled` is decided by how much there is to do."""
    one, other = expected.value, actual.value
    if not _known(dtype) or one.device != other.device or len(one) < ROW:
        return None
    tally = Tally()
    tally.elements = len(one)
    sides = [value[: len(one) // ROW * ROW].view(-1, ROW) for value in (one, other)]
    run = _Sweeps(sides, dtype, tolerance, compiled=_worth_compiling(one.nbytes) if compiled is None else compiled)
    doubtful = run.quick(tally)
    if len(doubtful):
        if dtype.name == "float64":
            return None  # Squares that no float64 holds are scaled there.
        run.careful(tally, doubtful)
    rest = sides[0].numel()
    if rest < len(one):
        tally.include(run.by_the_host(one[rest:], other[rest:], rest))
        tally.elements = len(one)
    return tally


def measure_on_device(tensor: DeviceTensor, dtype: Dtype, *, compiled: bool | None = None) -> Statistics | None:
    """The statistics of one tensor; None for what the host is to do."""
    value, torch = tensor.value, sys.modules["torch"]
    if not _known(dtype) or not len(value):
        return None
    if compiled is None:
        compiled = _worth_compiling(value.nbytes)
    work = made(_measured, compiled, name=dtype.name)
    size = _COMPILED_PIECE if compiled else _PIECE
    parts = torch.stack([work(value[at : at + size]) for at in range(0, len(value), size)])
    least, most = parts[:, 0].amin(), parts[:, 1].amax()
    low, high, total, squares, nans, infs = torch.stack([least, most, *parts[:, 2:].sum(0)]).tolist()
    finite = len(value) - int(nans) - int(infs)
    if dtype.name == "float64" and not (squares == 0 == max(high, -low) or _LEAST_SQUARE < squares < inf):
        return None
    if not finite:
        return Statistics(nan=int(nans), inf=int(infs))
    return Statistics(min=low, max=high, mean=total / finite, l2=sqrt(squares), nan=int(nans), inf=int(infs))


def _known(dtype: Dtype) -> bool:
    return dtype.name in _NAMES or (dtype.name.startswith("float8_") and hasattr(sys.modules["torch"], dtype.name))


def _worth_compiling(size: int) -> bool:
    _swept[0] += size
    return _swept[0] >= _WORTH_COMPILING


class _Sweeps:
    """Sweeps over rows of two tensors; what they find goes into a tally."""

    def __init__(self, sides: list[Any], dtype: Dtype, tolerance: Tolerance, *, compiled: bool) -> None:
        self.sides, self.dtype, self.tolerance, self.compiled = sides, dtype, tolerance, compiled
        self.rows = (_COMPILED_PIECE if compiled else _PIECE) // ROW
        self.kernel = Careful(dtype, dtype, tolerance)

    def quick(self, tally: Tally) -> Any:
        """Sweep all rows; which of them need more care, and were not counted?"""
        one, other = self.sides
        pieces = ((one[at : at + self.rows], other[at : at + self.rows]) for at in range(0, len(one), self.rows))
        doubtful, counts, _ = self._totals(tally, self._swept(pieces, careful=False), None)
        tally.pairs += ROW * (len(one) - counts[0])
        return doubtful.nonzero().flatten() if counts[0] else ()

    def careful(self, tally: Tally, rows: Any) -> None:
        pieces = ((self.sides[0][some], self.sides[1][some]) for some in rows.split(_PIECE // ROW))
        _, counts, _ = self._totals(tally, self._swept(pieces, careful=True), rows)
        for name, count in zip(_ODD, counts[-len(_ODD) :], strict=True):
            setattr(tally, name, getattr(tally, name) + count)

    def by_the_host(self, expected: Any, actual: Any, start: int) -> Tally:
        found = Tally(start)
        self.kernel.compare(found, *(side.cpu().numpy().view(np.uint8) for side in (expected, actual)))
        return found

    def _swept(self, pieces: Iterable[tuple[Any, Any]], *, careful: bool) -> list[Any]:
        kind, given = self.dtype, self.tolerance
        steps = 0 if kind.layout is None else kind.width * (1 if kind.signed else -1)
        if self.compiled and not careful and self.sides[0].is_cuda and kind.name in {"float32", "float16", "bfloat16"}:
            with suppress(Exception):  # as for what torch cannot compile
                from karat.tensors.device import triton_sweep

                return [*triton_sweep.sweep(self.sides[0], self.sides[1], given.rtol, given.atol, name=kind.name)]
        work = made(sweep, self.compiled, how=How(ROW, kind.name, steps, careful, given.equal_nan))
        parts = [work(one, other, given.rtol, given.atol) for one, other in pieces]
        cat = sys.modules["torch"].cat
        return [cat(each, -1) if len(each) > 1 else each[0] for each in zip(*parts, strict=True)]

    def _totals(self, tally: Tally, swept: list[Any], rows: Any) -> tuple[Any, list[int], list[float]]:
        doubtful, *found = totals(*swept, wide=self.dtype.name == "float64")
        counts, floats = (each.tolist() for each in found)
        _, steps, *places, same, wrong = counts[: 6 + 2]
        tally.bit_equal += same
        tally.mismatches += wrong
        tally.ulp = max(tally.ulp, steps + (1 << self.dtype.width - 1 if self.dtype.width >= 32 else 0))
        for name, term in zip(_SUMS, floats[2:], strict=True):
            getattr(tally, name).add(term)
        seen = (floats[0] >= 0, floats[1] >= 0, wrong, rows is not None and counts[-2])
        wanted = sorted({place for place, there in zip(places, seen, strict=True) if there})
        numbers = wanted if rows is None else rows[wanted].tolist()
        held = [side[numbers].cpu() for side in self.sides]
        for nth, number in enumerate(numbers):
            look = self.by_the_host(held[0][nth], held[1][nth], number * ROW)
            tally.abs.see(look.abs.size, look.abs.at, look.abs.expected, look.abs.actual)
            tally.rel.see(look.rel.size, look.rel.at)
            for name in ("first", "first_spoiled"):
                first = min((n for n in (getattr(tally, name), getattr(look, name)) if n >= 0), default=-1)
                setattr(tally, name, first)
        return doubtful, counts, floats


@cache
def made(which: Callable[..., Any], compiled: bool, **fixed: Any) -> Callable[..., Any]:  # noqa: FBT001 - a key
    """A function with what is fixed about it; compiled if that is asked for and can be."""

    def plain(*given: Any) -> Any:
        return which(*given, **fixed)

    # What is fixed is a constant to the compiler as long as it knows of no other function of the same code.
    plain.__code__ = plain.__code__.replace(co_name=f"{which.__name__}_{'_'.join(map(str, fixed.values()))}")
    quick: Callable[..., Any] | None = None

    def work(*given: Any) -> Any:
        nonlocal compiled, quick
        if compiled:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the compiler's own
                    torch = sys.modules["torch"]
                    quick = quick or torch.compile(plain)
                    for one in given:
                        if isinstance(one, torch.Tensor):
                            torch._dynamo.maybe_mark_dynamic(one, 0)  # noqa: SLF001 - rows are few or many
                    return quick(*given)
            except Exception:  # noqa: BLE001 - without a compiler, or one for this device, it is slower, and the same
                compiled = False
        return plain(*given)

    return work


def _numbers(bits: Any, name: str) -> Any:
    torch = sys.modules["torch"]
    if name == "bool":
        return (bits != 0).double()
    if name == "bfloat16":
        return (bits.int() << 16).view(torch.float32).double()
    if name.startswith("float8_"):
        return bits.view(getattr(torch, name)).float().double()
    return bits.view(getattr(torch, name)).double()


def _measured(bits: Any, *, name: str) -> Any:
    torch, x = sys.modules["torch"], _numbers(bits, name)
    fine, missing = torch.isfinite(x), torch.isnan(x)
    y = torch.where(fine, x, 0.0)
    extremes = torch.where(fine, x, inf).amin(), torch.where(fine, x, -inf).amax()
    return torch.stack([*extremes, y.sum(), (y * y).sum(), missing.sum().double(), (~fine & ~missing).sum().double()])


def _apart(one: Any, other: Any, width: int) -> Any:
    """Steps between two floats; from 32 bits on less half their range, so that they fit. Unsigned ones: −width."""
    torch = sys.modules["torch"]
    if abs(width) < 32:
        one, other = one.int(), other.int()
    if width == 8:
        one, other = (torch.where(bits >= 128, 128 - bits, bits) for bits in (one, other))
    elif width > 0:
        one, other = (torch.where(bits < 0, -(1 << width - 1) - bits, bits) for bits in (one, other))
    apart = torch.maximum(one, other) - torch.minimum(one, other)
    return apart ^ -(1 << width - 1) if width >= 32 else apart


class How(NamedTuple):
    """What is fixed about a sweep."""

    width: int  # Elements of a row.
    name: str
    steps: int = 0  # The bits of a float; negative for one without a sign, 0 where there are no steps.
    careful: bool = False
    equal_nan: bool = False


def sweep(expected: Any, actual: Any, rtol: float, atol: float, *, how: How) -> tuple[Any, Any, Any]:
    """Of each row: equal bits and mismatches; steps; the largest difference and quotient, and the sums.

    `careful` leaves out pairs that are not finite, and counts them beside the mismatches.
    """
    torch = sys.modules["torch"]
    expected, actual = expected.view(-1, how.width), actual.view(-1, how.width)
    x, y = _numbers(expected, how.name), _numbers(actual, how.name)
    odd: list[Any] = []
    finite = wrong = None
    if how.careful:
        fine, missing = [torch.isfinite(n) for n in (x, y)], [torch.isnan(n) for n in (x, y)]
        finite = fine[0] & fine[1]
        agree = (x == y) | (missing[0] & missing[1]) if how.equal_nan else x == y
        wrong = ~finite & ~agree
        odd = [*missing, ~fine[0] & ~missing[0], ~fine[1] & ~missing[1], fine[0] & ~fine[1], finite]
        x, y = torch.where(finite, x, 0.0), torch.where(finite, y, 0.0)
    d, base = y - x, x.abs()
    size = d.abs()
    outside, largest = size > atol + rtol * base, size
    apart = _apart(expected, actual, how.steps) if how.steps else expected.int() * 0
    if finite is not None:
        outside, largest = outside | wrong, torch.where(finite, size, -1.0)
        apart = torch.where(finite, apart, torch.iinfo(apart.dtype).min)
    counts = [each.sum(1, dtype=torch.int32) for each in (expected == actual, outside, *odd)]
    worst = [largest.amax(1), torch.where(base > 0, size / base, -1.0).amax(1)]
    sums = [each.sum(1) for each in (size, x * x, y * y, x * y, x * d, d * d)]
    return torch.stack(counts).long(), apart.amax(1).long(), torch.stack([*worst, *sums])


def totals(counts: Any, steps: Any, floats: Any, *, wide: bool) -> tuple[Any, Any, Any]:
    """Which rows are doubtful; of all others their number, steps, places, counts; and their extremes and sums."""
    torch = sys.modules["torch"]
    doubtful = ~torch.isfinite(floats[3:].sum(0))
    if wide:  # Squares may vanish as well.
        there = torch.stack([floats[1] >= 0, (floats[4] > 0) | (floats[0] > 0), floats[0] > 0])
        squares = torch.stack([floats[3], floats[4], floats[7]])
        doubtful = doubtful | ((squares < _LEAST_SQUARE) & there).any(0)
    most = torch.where(doubtful, -1.0, floats[:2])
    counts = torch.where(doubtful, 0, counts)
    firsts = [(each > 0).int().argmax() for each in (counts[1], counts[-2])]
    found = [doubtful.sum(), torch.where(doubtful, torch.iinfo(torch.int64).min, steps).amax(), most[0].argmax()]
    whole = torch.cat([torch.stack([*found, most[1].argmax(), *firsts]), counts.sum(1)])
    return doubtful, whole, torch.cat([most.amax(1), torch.where(doubtful, 0.0, floats[2:]).sum(1)])
