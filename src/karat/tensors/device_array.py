"""Large tensors of torch that numpy's functions take, where they lie.

The mathematics of a check is written once, for numpy arrays. A `DeviceArray` answers numpy's own protocols
(`__array_ufunc__`, `__array_function__`), so that the same lines run on a GPU, and on all cores of a CPU. What has no
counterpart below is done by numpy on the host: slower, never wrong. What comes out small is a numpy array again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache, partial
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from karat.system.processes import available_cores

LARGE = 2**16  # from so many elements on a tensor stays on its device, or is worked on in blocks on all cores
_FEW = 2**12
BLOCK = 2**14

# numpy's ufuncs that torch has, by its name for them; `equal` and the like are something else there.
_UFUNCS = {"equal": "eq", "not_equal": "ne", "invert": "bitwise_not", "rint": "round", "conjugate": "conj_physical"}
_SAME_NAME = {
    *("add", "subtract", "multiply", "divide", "negative", "absolute", "square", "sqrt", "exp", "log", "log2", "tanh"),
    *("isfinite", "isnan", "isinf", "less", "less_equal", "greater", "greater_equal", "frexp", "hypot", "copysign"),
    *("maximum", "minimum", "matmul", "sign", "power", "logical_and", "bitwise_and", "bitwise_or", "bitwise_xor"),
}
_TO_FLOATS = {"divide", "sqrt", "exp", "log", "log2", "tanh"}


@cache
def _torch() -> Any:
    return import_module("torch")


def stays(tensor: Any) -> bool:
    """Whether it is worth its while there: numpy is as quick as torch on the host, and quicker with few numbers."""
    return bool(tensor.numel() >= LARGE and tensor.device.type != "cpu")


def on_device(value: object) -> bool:
    return isinstance(value, DeviceArray)


def in_blocks(work: Callable[..., tuple[Any, ...]], *vectors: Any) -> tuple[Any, ...]:
    """What a function of elements makes of long vectors; of what it says with one number, one for each block.

    On the host that is done on all cores for some thousands of elements at a time, which are in the cache meanwhile.
    """
    size = vectors[0].size
    if on_device(vectors[0]) or size <= LARGE:
        return work(*vectors)

    def run(start: int) -> tuple[Any, ...]:
        with np.errstate(all="ignore"):  # of which threads have one of their own
            return work(*[one[start : start + BLOCK] for one in vectors])

    starts, cores = range(0, size, BLOCK), available_cores()
    found = [np.empty(size if np.ndim(part) else len(starts), np.asarray(part).dtype) for part in run(0)]

    def fill(starts: range) -> None:
        for start in starts:
            for whole, part in zip(found, run(start), strict=True):
                whole[slice(start, start + BLOCK) if np.ndim(part) else start // BLOCK] = part

    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(fill, (starts[n::cores] for n in range(cores))))
    return tuple(found)


def random_signs(count: int, rng: np.random.Generator, like: Any = None) -> Any:
    """±1, each with probability one half; where the other array lies."""
    if count < LARGE:
        return rng.integers(0, 2, count).astype(np.float64) * 2 - 1
    return 1.0 - (random_bytes(count, rng, like) & 128).astype(np.float64) / 64


def drawn(how: Callable[..., Any], seed: int | tuple[int, ...], likes: Sequence[Any]) -> Sequence[Any]:
    """Random numbers for arrays like these. Few are kept: the same case draws the same ones, again and again."""
    if sum(counts := tuple(one.size for one in likes)) <= _FEW:
        return _kept(how, seed, counts)
    rng = np.random.default_rng(seed)
    return [how(one.size, rng, one) for one in likes]


@lru_cache(maxsize=256)
def _kept(how: Callable[..., Any], seed: int | tuple[int, ...], counts: tuple[int, ...]) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    found = tuple(how(count, rng, None) for count in counts)
    for one in found:
        one.setflags(write=False)
    return found


def random_bytes(count: int, rng: np.random.Generator, like: Any) -> Any:
    """Drawn on the host, the same on every machine: the quickest that numpy draws, and little to send."""
    drawn = rng.integers(0, 256, count, dtype=np.uint8)
    return type(like)(like.beside(drawn)) if hasattr(like, "beside") else drawn


class DeviceArray(NDArrayOperatorsMixin):
    __slots__ = ("tensor",)
    functions: ClassVar[dict[Any, Callable[..., Any]]] = {}

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        array = self.tensor.numpy(force=True)
        return array if dtype is None else array.astype(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        out = more.pop("out", (None,))[0]
        work = _ufunc(ufunc.__name__) if method == "__call__" and not more else None
        if work is None:
            found = getattr(ufunc, method)(*map(on_host, inputs), **{key: on_host(one) for key, one in more.items()})
        else:
            given = [self._given(one) for one in inputs]
            if any(isinstance(one, float) for one in given) or ufunc.__name__ in _TO_FLOATS:
                # torch would make float32 of bools and integers.
                exact = [
                    hasattr(one, "is_complex") and not (one.is_floating_point() or one.is_complex()) for one in given
                ]
                given = [one.to(_torch().float64) if to else one for one, to in zip(given, exact, strict=True)]
            made = work(*given)
            found = tuple(map(DeviceArray, made)) if isinstance(made, tuple) else DeviceArray(made)
        if out is None:
            return found
        out[...] = on_host(found) if isinstance(out, np.ndarray) else found
        return out

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        found = self.functions[func](*args, **kwargs) if func in self.functions else NotImplemented
        if found is not NotImplemented:
            return found
        return func(*map(on_host, args), **{key: on_host(one) for key, one in kwargs.items()})

    def __getattr__(self, name: str) -> Any:
        function: Any = getattr(np, name, None)
        if function in self.functions:  # sum, any, argmax, …
            return lambda *args, **more: function(self, *args, **more)
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def _given(self, value: Any) -> Any:
        """A number or a tensor."""
        value = np.asarray(value) if isinstance(value, list) else value
        if isinstance(value, np.ndarray):
            return self.beside(value) if value.ndim else value.item()
        return _tensor(value)

    def beside(self, array: Any) -> Any:
        """A numpy array as a tensor on this one's device."""
        # Of what is not writable torch warns, though it only reads.
        whole = array if array.flags.writeable and all(step >= 0 for step in array.strides) else array.copy()
        return _torch().from_numpy(whole).to(self.tensor.device)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        return int(self.tensor.dim())

    @property
    def size(self) -> int:
        return int(self.tensor.numel())

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(str(self.tensor.dtype).removeprefix("torch."))

    @property
    def real(self) -> Any:
        return DeviceArray(self.tensor.real) if self.tensor.is_complex() else self

    @property
    def imag(self) -> Any:
        return DeviceArray(self.tensor.imag) if self.tensor.is_complex() else np.zeros_like(self)

    def __len__(self) -> int:
        return len(self.tensor)

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def setflags(self, write: bool) -> None:  # noqa: FBT001 - numpy's
        """Nothing: no tensor can be protected."""

    def copy(self) -> Any:
        return DeviceArray(self.tensor.clone())

    def reshape(self, *shape: Any) -> Any:
        return DeviceArray(self.tensor.reshape(*shape))

    def astype(self, dtype: Any, *, copy: bool = True) -> Any:
        return DeviceArray(self.tensor.to(_dtype(dtype), copy=copy))

    def view(self, dtype: Any) -> Any:
        """The same memory; complex numbers are pairs of real ones, along the last axis."""
        torch, wide = _torch(), _dtype(dtype)
        if self.tensor.is_complex() == wide.is_complex:
            return DeviceArray(self.tensor.view(wide))
        if self.tensor.is_complex():
            return DeviceArray(torch.view_as_real(self.tensor.resolve_conj()).flatten(-2))
        return DeviceArray(torch.view_as_complex(self.tensor.unflatten(-1, (-1, 2))))

    def __getitem__(self, key: Any) -> Any:
        found = self.tensor[self._key(key)]
        return DeviceArray(found) if stays(found) else np.asarray(DeviceArray(found))[()]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.tensor[self._key(key)] = self._given(value)

    def _key(self, key: Any) -> Any:
        return tuple(map(self._key, key)) if isinstance(key, tuple) else self._given(key)


def _dtype(dtype: Any) -> Any:
    return getattr(_torch(), np.dtype(dtype).name)


def _tensor(value: Any) -> Any:
    if isinstance(value, DeviceArray):
        return value.tensor
    return value.item() if isinstance(value, np.generic) else value


def on_host(value: Any) -> Any:
    if type(value) in {list, tuple}:
        return type(value)(map(on_host, value))
    return np.asarray(value) if isinstance(value, DeviceArray) else value


@cache
def _ufunc(name: str) -> Callable[..., Any] | None:
    found: Any = getattr(_torch(), _UFUNCS.get(name, name)) if name in _UFUNCS or name in _SAME_NAME else None
    limits = {"maximum": "min", "minimum": "max"}

    def bound(one: Any, other: Any) -> Any:
        tensor, limit = (one, other) if hasattr(one, "clamp") else (other, one)
        # Of two tensors, or of one and a number, which torch has another word for.
        return found(one, other) if hasattr(limit, "clamp") else tensor.clamp(**{limits[name]: limit})

    return bound if name in limits else found


def _where(condition: Any, one: Any, other: Any) -> Any:
    torch = _torch()
    like = next(each for each in (condition, one, other) if isinstance(each, DeviceArray))
    sides = [like.beside(each) if isinstance(each, np.ndarray) else _tensor(each) for each in (condition, one, other)]
    if not isinstance(sides[0], torch.Tensor):
        sides[0] = torch.as_tensor(bool(sides[0]), device=like.tensor.device)
    if not any(isinstance(each, torch.Tensor) for each in sides[1:]):
        sides[1] = torch.as_tensor(sides[1], dtype=torch.float64, device=like.tensor.device)
    return DeviceArray(torch.where(*sides))


def _reduced(name: str) -> Callable[..., Any]:
    def work(array: Any, *axes: Any, initial: Any = None, where: Any = None, **more: Any) -> Any:
        if axes or more or not isinstance(array, DeviceArray):
            return NotImplemented
        tensor = array.tensor if where is None else _where(where, array, initial).tensor
        if name == "mean" and not tensor.is_floating_point():
            tensor = tensor.to(_torch().float64)
        found = getattr(tensor, name)().numpy(force=True)[()]
        return found if initial is None or name not in {"max", "min"} else getattr(np, f"{name}imum")(found, initial)

    return work


def _filled(name: str, array: DeviceArray, dtype: Any = None) -> Any:
    wide = array.tensor.dtype if dtype is None else _dtype(dtype)
    return DeviceArray(getattr(_torch(), name)(array.tensor, dtype=wide))


def _same(one: Any, other: Any, equal_nan: bool = False) -> Any:  # noqa: FBT001, FBT002 - numpy's
    if np.shape(one) != np.shape(other):
        return False
    same = one == other
    return bool(np.all(same | ((one != one) & (other != other)) if equal_nan else same))  # noqa: PLR0124 - NaN


def _stacked(arrays: Any) -> Any:
    like = next(one for one in arrays if isinstance(one, DeviceArray))
    return DeviceArray(_torch().stack([like._given(one) for one in arrays]))  # noqa: SLF001 - its own


_REDUCED = ("sum", "mean", "any", "all", "max", "min", "argmax", "argmin", "median", "count_nonzero")
DeviceArray.functions |= {
    **{getattr(np, name): _reduced(name) for name in _REDUCED},
    np.where: lambda *args: _where(*args) if len(args) == 3 else NotImplemented,
    np.zeros_like: partial(_filled, "zeros_like"),
    np.ones_like: partial(_filled, "ones_like"),
    np.array_equal: _same,
    np.stack: _stacked,
    np.clip: lambda array, low, high: DeviceArray(array.tensor.clamp(low, high)),
    np.dot: lambda one, other: np.sum(one * other),
    np.swapaxes: lambda array, one, other: DeviceArray(array.tensor.swapaxes(one, other)),
    np.shape: lambda array: array.shape,
    np.iscomplexobj: lambda array: array.tensor.is_complex(),
}
