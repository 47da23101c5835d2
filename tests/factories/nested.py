"""Nested values of every kind that a bundle keeps, and a way to tell whether one is another, bit by bit."""

from __future__ import annotations

import struct
import sys
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum, Flag, IntEnum
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st


class Colour(Enum):
    RED = 1
    GREEN = "grün"
    PAIR = (1, 2.5)


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Bits(Flag):
    A = 1
    B = 2


class Pair(NamedTuple):
    left: Any
    right: Any = None


Old = namedtuple("Old", "x y")  # noqa: PYI024 - the other way to make one


@dataclass
class Box:
    content: Any
    label: str = "box"


@dataclass(frozen=True, slots=True)
class Frozen:
    content: Any
    twice: Any = field(init=False, default=None)


@dataclass(kw_only=True)
class Derived(Box):
    later: Any = field(init=False)


@dataclass
class ModelOutput(OrderedDict[str, Any]):
    """What model libraries return: a mapping of the fields that are set."""

    loss: Any = None
    logits: Any = None

    def __post_init__(self) -> None:
        for one in fields(self):
            if (value := getattr(self, one.name)) is not None:
                OrderedDict.__setitem__(self, one.name, value)


CLASSES = (Colour, Level, Bits, Pair, Old, Box, Frozen, Derived, ModelOutput)

DOUBLES = st.one_of(
    st.floats(), st.binary(min_size=8, max_size=8).map(lambda data: float(struct.unpack("<d", data)[0]))
)
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(1 << 200), max_value=1 << 200),
    DOUBLES,
    st.builds(complex, DOUBLES, DOUBLES),
    st.text(st.characters()),
    st.binary(max_size=40),
    st.binary(max_size=10).map(bytearray),
    st.just(...),
    st.sampled_from([*Colour, *Level, *Bits, Bits.A | Bits.B, Bits(0)]),
    st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 3)),
    st.builds(slice, st.none() | st.integers(), st.none() | st.integers(), st.none()),
    st.sampled_from([np.dtype(">f4"), np.dtype("<i8"), np.dtype("<M8[ns]"), np.dtype("<U7")]),
)
KEYS = st.one_of(
    st.text(st.characters(), max_size=8),
    st.integers(),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False),
    st.binary(max_size=4),
    st.tuples(st.integers(), st.text(max_size=3)),
    st.sampled_from([*Colour, *Level]),
)
HASHABLE = st.one_of(KEYS, st.frozensets(st.integers(), max_size=3))


ARRAYS = st.sampled_from(
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.float16(1.5),
        np.array(3, np.int64),
        np.zeros((0, 3)),
        np.datetime64("2026-01-01"),
        np.str_("text"),
    ]
)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values of every container around the leaves."""
    return st.recursive(PLAIN | leaves, _around, max_leaves=12)


def _around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=3).map(OrderedDict),
        st.dictionaries(KEYS, inner, max_size=3).map(lambda items: defaultdict(list, items)),
        st.sets(HASHABLE, max_size=4),
        st.frozensets(HASHABLE, max_size=4),
        st.builds(Pair, inner, inner),
        st.builds(Old, inner, inner),
        st.builds(Box, inner, st.text(max_size=5)),
        st.builds(Frozen, inner),
        st.builds(Derived, inner),
        st.builds(ModelOutput, inner, inner),
    )


def same(one: Any, other: Any) -> bool:
    """Whether two values are of one type and have the same bits, all the way down."""
    if type(one) is not type(other):
        return False
    for applies, compare in _COMPARISONS:
        if applies(one):
            return compare(one, other)
    return bool(one == other)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) or _is_torch(value) or _is_jax(value)


def _same_double(one: float, other: float) -> bool:
    return struct.pack("<d", one) == struct.pack("<d", other)


def _same_complex(one: complex, other: complex) -> bool:
    return _same_double(one.real, other.real) and _same_double(one.imag, other.imag)


def _same_items(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(map(same, one, other))


def _same_set(one: Any, other: Any) -> bool:
    return same(sorted(one, key=repr), sorted(other, key=repr))


def _same_fields(one: Any, other: Any) -> bool:
    names = [each.name for each in fields(one)]
    own = all(
        hasattr(one, name) == hasattr(other, name) and same(getattr(one, name, None), getattr(other, name, None))
        for name in names
    )
    return own and (not isinstance(one, dict) or _same_entries(one, other))


def _same_entries(one: Any, other: Any) -> bool:
    factory = getattr(one, "default_factory", None) is getattr(other, "default_factory", None)
    return factory and same([*one], [*other]) and same([*one.values()], [*other.values()])


def same_array(one: Any, other: Any) -> bool:
    """Dtype, shape and bits of two arrays of one framework."""
    if one.dtype != other.dtype or tuple(one.shape) != tuple(other.shape):
        return False
    if _is_torch(one):
        torch = sys.modules["torch"]
        as_bytes = [
            # One element may have any stride and count as contiguous, but cannot be looked at as bytes then.
            each.detach().contiguous().as_strided((each.numel(),), (1,)).view(torch.uint8) if each.numel() else each
            for each in (one, other)
        ]
        return bool((as_bytes[0] == as_bytes[1]).all()) if one.numel() else True
    if one.dtype.char in "gG":  # a long double has bytes that mean nothing
        same_signs = np.array_equal(np.signbit(np.real(one)), np.signbit(np.real(other)))
        return same_signs and np.array_equal(one, other, equal_nan=True)
    return bool(np.asarray(one).tobytes() == np.asarray(other).tobytes())


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_jax(value: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def _is_size(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Size)


_COMPARISONS: tuple[tuple[Callable[[Any], bool], Callable[[Any, Any], bool]], ...] = (
    (_is_array, same_array),
    (lambda value: isinstance(value, float), _same_double),
    (lambda value: isinstance(value, complex), _same_complex),
    (is_dataclass, _same_fields),
    (lambda value: isinstance(value, dict), _same_entries),
    (lambda value: isinstance(value, list | tuple) and not _is_size(value), _same_items),
    (lambda value: isinstance(value, set | frozenset), _same_set),
)
