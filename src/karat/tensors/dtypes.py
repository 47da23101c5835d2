"""dtypes: the table of every element type that a bundle can hold.

A name gives the size of an element, what kind of value it is, and the form in which safetensors keeps it:
under its own name where the format has one, else as a plain type with the rest in a trailing dimension
(complex128 is float64 with a last dimension of 2). How bits become numbers is in `bits`.

Names that are in no table are parsed, never evaluated: `<U12`, `|S5`, `|V7`, `<M8[ns]`, and the JSON of a
structured dtype. What is none of these is an `UnknownDtype`.

The default tolerance of float16 and wider is that of `torch.testing.assert_close`, which users know: about the square
root of the machine epsilon for rtol, more for half types. For eight bits and fewer torch has no useful default; karat
allows one step at the low end of a binade, 2 ** −mantissa bits, and one subnormal step near zero. float8_e8m0fnu has no
mantissa: its numbers are scales, a step is a factor of two, and they are exact. So are integers, bool, text and times.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import product
from math import inf, nan, prod
from typing import Literal

import msgspec

from karat.tensors.comparison import Tolerance
from karat.tensors.tensor import Damaged

Kind = Literal["bool", "int", "float", "complex", "opaque"]
"""`opaque`: text, times, structures and bare bits, which are the same or not."""

MOST_DIMENSIONS = 64  # numpy has no more
_LARGEST_ITEM = 1 << 31


class UnknownDtype(Damaged):
    """A dtype that this karat does not know; a newer one may have written it."""


class Layout(msgspec.Struct, frozen=True):
    """How the bits of a small float are to be read."""

    exponent: int
    mantissa: int
    bias: int
    signed: bool = True
    special: Literal["ieee", "nan_only", "negative_zero", "none", "all_ones"] = "ieee"
    """What the largest exponent means: infinities and NaNs, one NaN, nothing; `negative_zero`: −0 is the NaN."""


class Dtype(msgspec.Struct, frozen=True):
    name: str
    itemsize: int
    kind: Kind
    bits: str  # the unsigned integers, or bytes, that numpy sees if it does not know the type: `<u2`, `|V16`
    carrier: str  # what safetensors keeps it as
    extra: tuple[int, ...] = ()  # trailing dimensions of what safetensors keeps
    width: int = 0  # bits that count: 4 of the 8 of an int4; of one part of a complex number
    signed: bool = True
    layout: Layout | None = None


# fmt: off
CODES: Mapping[str, str] = {
    "uint64": "U64", "int64": "I64", "float64": "F64", "complex64": "C64", "float32": "F32", "uint32": "U32",
    "int32": "I32", "bfloat16": "BF16", "float16": "F16", "uint16": "U16", "int16": "I16",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "int8": "I8", "uint8": "U8",
    "float4_e2m1fn_x2": "F4", "bool": "BOOL",
}
# fmt: on
"""What safetensors 0.8 has a name for, in the order in which its library writes tensors."""

_FLOATS: Mapping[str, Layout] = {
    "float16": Layout(5, 10, 15),
    "bfloat16": Layout(8, 7, 127),
    "float32": Layout(8, 23, 127),
    "float64": Layout(11, 52, 1023),
    "float8_e3m4": Layout(3, 4, 3),
    "float8_e4m3": Layout(4, 3, 7),
    "float8_e4m3fn": Layout(4, 3, 7, special="nan_only"),
    "float8_e4m3fnuz": Layout(4, 3, 8, special="negative_zero"),
    "float8_e4m3b11fnuz": Layout(4, 3, 11, special="negative_zero"),
    "float8_e5m2": Layout(5, 2, 15),
    "float8_e5m2fnuz": Layout(5, 2, 16, special="negative_zero"),
    "float8_e8m0fnu": Layout(8, 0, 127, signed=False, special="all_ones"),
    "float6_e2m3fn": Layout(2, 3, 1, special="none"),
    "float6_e3m2fn": Layout(3, 2, 3, special="none"),
    "float4_e2m1fn": Layout(2, 1, 1, special="none"),
}
_COMPLEX = {"complex32": "float16", "bcomplex32": "bfloat16", "complex64": "float32", "complex128": "float64"}
_TOLERANCES: Mapping[str, tuple[float, float]] = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
}


def _bytes_for(width: int) -> int:
    return max(8, 1 << (width - 1).bit_length()) // 8


def _opaque(name: str, size: int, carrier: str = "uint8", extra: tuple[int, ...] = ()) -> Dtype:
    if size >= _LARGEST_ITEM:
        raise UnknownDtype(f"expected elements that numpy can hold, found {size:,} bytes each")
    return Dtype(name, size, "opaque", f"|V{size}", carrier, extra)


def _table() -> Mapping[str, Dtype]:
    found: dict[str, Dtype] = {}
    for name, layout in _FLOATS.items():
        width = layout.exponent + layout.mantissa + layout.signed
        size, carrier = _bytes_for(width), name if name in CODES else "uint8"
        found[name] = Dtype(name, size, "float", f"<u{size}", carrier, (), width, layout.signed, layout)
    for name, part in _COMPLEX.items():
        of, own = found[part], name in CODES
        carrier, extra = name if own else part, () if own else (2,)
        found[name] = Dtype(name, 2 * of.itemsize, "complex", of.bits, carrier, extra, of.width, layout=of.layout)
    for width, kind in product((1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64), ("int", "uint")):
        name, size = f"{kind}{width}", _bytes_for(width)
        found[name] = Dtype(name, size, "int", f"<u{size}", f"{kind}{size * 8}", (), width, kind == "int")
    found["bool"] = Dtype("bool", 1, "bool", "<u1", "bool", width=1, signed=False)
    # torch's: bytes without a meaning.
    for name, size in {"bits8": 1, "bits1x8": 1, "bits2x4": 1, "bits4x2": 1, "bits16": 2}.items():
        found[name] = _opaque(name, size, f"uint{8 * size}")
    # Two numbers to a byte, as torch and safetensors have it.
    packed = "float4_e2m1fn_x2"
    found[packed] = Dtype(packed, 1, "float", "<u1", packed, width=4, layout=_FLOATS["float4_e2m1fn"])
    # numpy's long double is another type on every platform; the name says which one it was.
    for real, cplx in (("float80", "complex160"), ("float128", "complex256")):
        found[real] = Dtype(real, 16, "float", "|V16", "uint8", (16,))
        found[cplx] = Dtype(cplx, 32, "complex", "|V16", "uint8", (32,))
    return found


TABLE: Mapping[str, Dtype] = _table()

_TEXT = re.compile(r"<U(0|[1-9]\d{0,8})")
_BYTES = re.compile(r"\|[SV](0|[1-9]\d{0,8})")
_TIME = re.compile(r"<[mM]8(\[([1-9]\d{0,8})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?")
_FIELD = re.compile(r"[<>|][biufcmMSUV]\d{1,9}(\[\w{1,12}\])?")


@lru_cache(maxsize=1024)
def dtype_named(name: str) -> Dtype:
    """The element type of a name; `UnknownDtype` if there is none."""
    if name in TABLE:
        return TABLE[name]
    if found := _TEXT.fullmatch(name):
        length = int(found[1])
        return _opaque(name, 4 * length, "uint32", (length,))
    if found := _BYTES.fullmatch(name):
        return _opaque(name, int(found[1]), "uint8", (int(found[1]),))
    if _TIME.fullmatch(name):
        return _opaque(name, 8, "int64")
    if name.startswith("["):
        size = field_size(fields_of(name))
        return _opaque(name, size, "uint8", (size,))
    raise UnknownDtype(f"expected the name of a dtype, found {name[:80]!r}")


Field = tuple[str, "str | list[Field]", tuple[int, ...]]
"""A field of a structured dtype: name, numpy's string or fields of its own, and the shape of a subarray."""


def fields_of(name: str) -> list[Field]:
    """The fields of a structured dtype from its JSON; a field without a name is padding."""
    try:
        parsed = msgspec.json.decode(name)
    except (ValueError, RecursionError) as error:  # msgspec's are among the former
        raise UnknownDtype(f"expected the JSON of a structured dtype, found {name[:80]!r}") from error
    return _fields(parsed, name, depth=0)


def _fields(parsed: object, whole: str, depth: int) -> list[Field]:
    wrong = UnknownDtype(f"expected the fields of a structured dtype, found {whole[:80]!r}")
    if not isinstance(parsed, list) or depth > 8:
        raise wrong
    found: list[Field] = []
    for item in parsed:
        if not (isinstance(item, list) and 2 <= len(item) <= 3 and isinstance(item[0], str)):
            raise wrong
        shape = item[2] if len(item) == 3 else []
        if not (isinstance(shape, list) and len(shape) <= MOST_DIMENSIONS):
            raise wrong
        if not all(type(n) is int and 0 <= n < _LARGEST_ITEM for n in shape):
            raise wrong
        form = item[1] if isinstance(item[1], str) else _fields(item[1], whole, depth + 1)
        if isinstance(form, str) and not _FIELD.fullmatch(form):
            raise wrong
        found.append((item[0], form, tuple(shape)))
    return found


def field_size(form: str | list[Field]) -> int:
    """Bytes of one field, without its subarray's shape."""
    if not isinstance(form, str):
        return sum(field_size(inner) * prod(shape) for _, inner, shape in form)
    count = int(form[2:].partition("[")[0])
    return 4 * count if form[1] == "U" else count


def nbytes(dtype: str, shape: tuple[int, ...]) -> int:
    """How many bytes a tensor takes; `UnknownDtype` or `Damaged` for what no framework can hold."""
    itemsize = dtype_named(dtype).itemsize
    # Before anything is multiplied: a product of a million lengths takes hours.
    if len(shape) > MOST_DIMENSIONS:
        raise Damaged(f"expected at most {MOST_DIMENSIONS} dimensions, found {len(shape):,}")
    # Frameworks compute strides even if a length is 0, and fail if those do not fit.
    if prod(max(1, length) for length in shape) * max(1, itemsize) >= 1 << 63:
        raise Damaged(f"expected a shape that fits into 63 bits, found {shape!s:.200}")
    return itemsize * prod(shape)


def stored(dtype: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """The code and the shape with which safetensors keeps a tensor; packed types count their elements."""
    of = dtype_named(dtype)
    # The format doubles the last dimension of packed types, where there is one.
    packed = of.carrier == "float4_e2m1fn_x2"
    kept = (*shape, *of.extra)
    shown = (*kept[:-1], 2 * kept[-1]) if packed and shape else kept
    return CODES["uint8" if packed and not shape else of.carrier], shown


def for_dtype(dtype: str) -> Tolerance:
    of = dtype_named(dtype)
    # What is wider than float64 is held to float64's: what it is compared with seldom is wider.
    part = "float64" if of.bits == "|V16" and of.kind != "opaque" else _COMPLEX.get(dtype, dtype)
    rtol, atol = _TOLERANCES.get(part, (0.0, 0.0))
    if part not in _TOLERANCES and of.layout is not None and of.layout.mantissa:
        rtol, atol = 2.0**-of.layout.mantissa, 2.0 ** (1 - of.layout.bias - of.layout.mantissa)
    return Tolerance(rtol=rtol, atol=atol, origin="dtype")


def tolerance_for(
    expected: str,
    actual: str,
    rtol: float | None,
    atol: float | None,
    *,
    equal_nan: bool = False,
    integers: bool = False,
) -> Tolerance:
    """The tolerance of a comparison: what is given, and the wider default of both dtypes for the rest.

    What is given is meant for floats, where it is a small part of a value. An index or a token is another one as soon as
    it is off by one, so two integers get it only with `integers`.
    """
    one, other = for_dtype(expected), for_dtype(actual)
    given = checked("rtol", rtol, max(one.rtol, other.rtol)), checked("atol", atol, max(one.atol, other.atol))
    if rtol is None and atol is None:
        return Tolerance(rtol=given[0], atol=given[1], equal_nan=equal_nan, origin="dtype")
    if any(given) and not integers and {dtype_named(expected).kind, dtype_named(actual).kind} <= {"int", "bool"}:
        return Tolerance(rtol=0.0, atol=0.0, equal_nan=equal_nan, origin="integers")
    return Tolerance(rtol=given[0], atol=given[1], equal_nan=equal_nan)


def checked(name: str, given: float | None, default: float) -> float:
    if given is None:
        return default
    try:
        value = float(given)
    except (TypeError, ValueError, OverflowError):
        value = nan
    if not 0 <= value < inf:
        raise ValueError(f"{name}: expected a finite number >= 0, found {given!r:.100}")
    return value
