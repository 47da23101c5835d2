"""Large arrays that are computed a block at a time, on every core.

The mathematics of a check is written once, for numpy arrays. Of millions of numbers each of its lines would write a whole
array, for the next line to read again, and most of the time goes into memory. A `BlockArray` answers numpy's own protocols,
as a `DeviceArray` does, and only notes what is to be done. That is done when a number is asked for (a sum, a largest,
whether any), or it is time to `settle`: all lines at once for some thousands of elements, while those are in the cache. What
has no counterpart below is done by numpy with whole arrays: slower, never wrong.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from karat.tensors.device_array import LARGE, LargeArray, on_device, on_host

BLOCK = 2**14
MANY = 2**21  # from so many elements on it is worth its while, and so are threads; fewer fit into caches as they are


def in_blocks(work: Callable[..., tuple[Any, ...]], *vectors: Any, into: Sequence[Any] = ()) -> tuple[Any, ...]:
    """What a function of elements makes of long vectors; of what it says with one number, one for each block.

    The first that come out take the memory of vectors that are no longer wanted (`into`).
    """
    size = vectors[0].size
    if on_device(vectors[0]) or (size <= LARGE and not isinstance(vectors[0], BlockArray)):
        return work(*vectors)
    nodes, found, starts = [_node(one) for one in vectors], [_node(one) for one in into], range(0, size, BLOCK)
    uses = _uses(nodes)

    def run(start: int) -> int:
        known: dict[int, list[Any]] = {}
        key = slice(start, min(start + BLOCK, size))
        with np.errstate(all="ignore"):  # of which threads have one of their own
            made = work(*[_value(one, key, uses, known) for one in nodes])
        for n, part in enumerate(made):
            if n == len(found):
                found.append(room(size if np.ndim(part) else len(starts), np.asarray(part).dtype))
            found[n][key if np.ndim(part) else start // BLOCK] = part
        return len(made)

    count = run(0)
    # Once so much was freed at once, the C library keeps what blocks free, and does not return it, page by page, for each.
    np.empty(31 * 2**20, np.uint8)
    workers = 1 if size < MANY else os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda first: list(map(run, starts[first + 1 :: workers])), range(workers)))
    return tuple(map(wrapped, found[:count]))


class _Rooms(threading.local):
    held: list[Any] | None = None


_rooms = _Rooms()


@contextmanager
def recycled() -> Iterator[None]:
    """Within it large arrays take the memory of others that nobody holds any more: new memory costs more than the work."""
    before, _rooms.held = _rooms.held, _rooms.held or []
    try:
        yield
    finally:
        _rooms.held = before


def room(size: int, dtype: Any) -> Any:
    """A vector to be filled."""
    length = size * np.dtype(dtype).itemsize
    if size < MANY or _rooms.held is None:
        return np.empty(size, dtype)
    for one in _rooms.held:
        if length <= one.size <= 2 * length and sys.getrefcount(one) == 3:  # by the list, here, and by the count itself
            return one[:length].view(dtype)
    _rooms.held.append(np.empty(length, np.uint8))
    return _rooms.held[-1].view(dtype)


def wrapped(array: Any) -> Any:
    """An array of very many numbers as a `BlockArray`; any other as it is."""
    return BlockArray(array.reshape(-1), array.shape) if isinstance(array, np.ndarray) and array.size >= MANY else array


def settle(*arrays: Any) -> None:
    """Compute what was only noted, all of one length in one go: what is used again and again is to be there."""
    lazy = [one for one in arrays if isinstance(one, BlockArray) and isinstance(one.node, _Operation)]
    for size in {one.size for one in lazy}:
        alike = [one for one in lazy if one.size == size]
        for one, found in zip(alike, in_blocks(lambda *parts: parts, *alike), strict=True):
            # What was made of the operation knows, too, and lets go of what it came from.
            one.node.work, one.node.parts = np.asarray, [_node(found)]
            one.node = _node(found)


def fresh(array: Any) -> Any:
    """A numpy array with these numbers, in memory of its own and in C order."""
    if not isinstance(whole := wrapped(array), BlockArray):
        return np.array(array, order="C")
    return _node(in_blocks(lambda part: (part,), whole)[0]).reshape(array.shape)


class _Operation:
    """What is to be done with what."""

    __slots__ = ("parts", "work")

    def __init__(self, work: Callable[..., Any], parts: Sequence[Any]) -> None:
        self.work, self.parts = work, parts


class BlockArray(LargeArray):
    __slots__ = ("node", "shape")
    functions: ClassVar[dict[Any, Callable[..., Any]]] = {}

    def __init__(self, node: Any, shape: tuple[int, ...] | None = None) -> None:
        self.node = node  # a vector, or an operation
        self.shape: tuple[int, ...] = node.shape if shape is None else shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        settle(self)
        whole = np.ascontiguousarray(self.node).reshape(self.shape)
        return whole if dtype is None else whole.astype(dtype, copy=bool(copy))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        out = more.pop("out", (None,))[0]
        if method == "__call__" and not more and ufunc.nout == 1 and self.fits(inputs):
            found = self.noted(ufunc, *inputs)
        else:
            found = getattr(ufunc, method)(*map(on_host, inputs), **{key: on_host(one) for key, one in more.items()})
        if isinstance(out, BlockArray):
            out.node = _node(found)
        elif out is not None:
            out[...] = np.asarray(found)
        return found if out is None else out

    def at(self, key: Any) -> Any:
        return _value(self.node, key, _uses([self.node]), {})

    def fits(self, inputs: Sequence[Any]) -> bool:
        return all(np.ndim(one) == 0 or np.shape(one) == self.shape for one in inputs)

    def noted(self, work: Callable[..., Any], *inputs: Any) -> BlockArray:
        return BlockArray(_Operation(work, [_node(one) for one in inputs]), self.shape)

    size = property(lambda self: int(np.prod(self.shape, dtype=np.int64)))
    ndim = property(lambda self: len(self.shape))
    dtype = property(lambda self: np.asarray(self.at(slice(0, 0))).dtype)
    real = property(lambda self: self.noted(np.real, self))
    imag = property(lambda self: self.noted(np.imag, self))

    def beside(self, array: Any) -> Any:
        return array

    def copy(self) -> Any:
        return BlockArray(self.node, self.shape)

    def reshape(self, *shape: Any) -> Any:
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        return BlockArray(self.node, (self.size,) if given == (-1,) else given)

    def astype(self, dtype: Any, *, copy: bool = True) -> Any:
        return self.noted(lambda one: np.asarray(one).astype(dtype, copy=copy), self)

    def view(self, dtype: Any) -> Any:
        if np.dtype(dtype).itemsize == self.dtype.itemsize:
            return self.noted(lambda one: one.view(dtype), self)
        return wrapped(np.asarray(self).view(dtype))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice) and key == slice(None):
            return self
        if self.ndim > 1 or isinstance(key, tuple):
            return np.asarray(self)[key]
        key = np.asarray(key) if isinstance(key, BlockArray | list) else key
        return np.broadcast_to(self.at(key), np.empty(self.size, np.bool_)[key].shape)[()]

    def __setitem__(self, key: Any, value: Any) -> None:
        if np.ndim(value) == 0 and np.shape(key) == self.shape:
            self.node = _where(key, value, self).node
        else:
            self.node = np.array(self).reshape(-1)
            self.node.reshape(self.shape)[on_host(key)] = value


def _node(value: Any) -> Any:
    if isinstance(value, BlockArray):
        return value.node
    return value.reshape(-1) if isinstance(value, np.ndarray) and value.ndim else value


def _uses(nodes: Sequence[Any]) -> dict[int, int]:
    """How often each operation is wanted."""
    found: dict[int, int] = {}
    left = list(nodes)
    while left:
        node = left.pop()
        if isinstance(node, _Operation):
            found[id(node)] = found.get(id(node), 0) + 1
            left += node.parts if found[id(node)] == 1 else ()
    return found


def _value(node: Any, key: Any, uses: Mapping[int, int], known: dict[int, list[Any]]) -> Any:
    """What it comes to at some of the elements; nothing is kept beyond its last use, so that all of it stays in the cache."""
    if not isinstance(node, _Operation):
        return node[key] if isinstance(node, np.ndarray) and node.ndim else node
    mark = id(node)
    if mark not in known:
        found = node.work(*[_value(one, key, uses, known) for one in node.parts])
        if uses[mark] == 1:
            return found
        known[mark] = [found, uses[mark]]
    known[mark][1] -= 1
    return known[mark][0] if known[mark][1] else known.pop(mark)[0]


def _where(*given: Any) -> Any:
    like = next(each for each in given if isinstance(each, BlockArray))
    return like.noted(np.where, *given) if len(given) == 3 and like.fits(given) else NotImplemented


def _reduced(name: str, last: str = "") -> Callable[..., Any]:
    function: Any = getattr(np, name)

    def work(array: Any, *axes: Any, initial: Any = None, where: Any = None, **more: Any) -> Any:
        if axes or more or not isinstance(array, BlockArray):
            return NotImplemented
        array = array if where is None else np.where(where, array, initial)
        if name in {"any", "all"} and function(array.at(slice(0, BLOCK))) == (name == "any"):
            return name == "any"  # the first block says so
        parts = in_blocks(lambda one: (function(one),), array)[0]
        found = getattr(np.asarray(parts), last or name)()
        return found if initial is None or name not in {"max", "min"} else getattr(np, f"{name}imum")(found, initial)

    return work


def _filled(number: int) -> Callable[..., Any]:
    # One number in the place of all, without memory for each.
    return lambda array, dtype=None: BlockArray(
        np.broadcast_to(np.dtype(dtype or array.dtype).type(number), array.size), array.shape
    )


BlockArray.functions |= {
    **{getattr(np, name): _reduced(name) for name in ("sum", "any", "all", "max", "min")},
    **{getattr(np, name): attrgetter(name) for name in ("shape", "ndim", "size")},
    np.count_nonzero: _reduced("count_nonzero", "sum"),
    np.mean: lambda array: np.sum(array) / array.size,
    np.where: _where,
    np.clip: lambda array, low, high: np.minimum(np.maximum(array, low), high),
    np.zeros_like: _filled(0),
    np.ones_like: _filled(1),
    np.dot: lambda one, other: np.sum(one * other),
    np.iscomplexobj: lambda array: array.dtype.kind == "c",
}
