"""The table of dtypes, held against numpy, ml_dtypes, torch and safetensors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray
from safetensors import deserialize

from factories.bit_patterns import NUMERIC, ODD_NAMES, patterns, torch_dtypes
from karat.tensors.arrays import tensor_of, value_of
from karat.tensors.bits import table_of, widened
from karat.tensors.dtypes import TABLE, UnknownDtype, dtype_named, for_dtype, nbytes, stored, tolerance_for
from karat.tensors.numpy_arrays import name_of, numpy_dtype
from karat.tensors.tensor import Damaged, Tensor

ONE_BYTE = [
    name
    for name, dtype in TABLE.items()
    if dtype.itemsize == 1 and dtype.kind in {"float", "int"} and hasattr(ml_dtypes, name)
]
TORCH_ONLY = {"float4_e2m1fn_x2"}


def codes(name: str) -> NDArray[np.uint8]:
    """Every bit pattern of a one-byte dtype."""
    width = TABLE[name].width
    return np.arange(1 << width, dtype=np.uint8)


@pytest.mark.parametrize("name", ONE_BYTE)
def test_every_bit_pattern_means_what_ml_dtypes_says(name: str) -> None:
    theirs = codes(name).view(getattr(ml_dtypes, name)).astype(np.float32)
    ours = table_of(name)[codes(name)]
    np.testing.assert_array_equal(ours, theirs)
    zeros = theirs == 0
    np.testing.assert_array_equal(np.signbit(ours[zeros]), np.signbit(theirs[zeros]))


@pytest.mark.parametrize("name", [n for n in TABLE if n.startswith("float8_")])
def test_every_bit_pattern_means_what_torch_says(name: str, torch: Any) -> None:
    if not hasattr(torch, name):
        assert hasattr(ml_dtypes, name), f"{name} is nobody's"
        return
    every = np.arange(256, dtype=np.uint8)
    theirs = torch.from_numpy(every.copy()).view(getattr(torch, name)).float().numpy()
    np.testing.assert_array_equal(table_of(name), theirs)


def test_every_bfloat16_and_float16_means_what_ml_dtypes_and_numpy_say() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    for name, theirs in (("bfloat16", ml_dtypes.bfloat16), ("float16", np.float16)):
        with np.errstate(invalid="ignore"):  # signalling NaN among them
            expected = every.view(theirs).astype(np.float64)
            found = widened(name, every.view(np.uint8))
        assert found is not None
        np.testing.assert_array_equal(found, expected)


def test_two_packed_numbers_are_the_low_and_the_high_half() -> None:
    table = table_of("float4_e2m1fn_x2")
    single = table_of("float4_e2m1fn")
    every = np.arange(256)
    np.testing.assert_array_equal(table[:, 0], single[every & 15])
    np.testing.assert_array_equal(table[:, 1], single[every >> 4])


@pytest.mark.parametrize("name", NUMERIC)
def test_widening_is_what_numpy_reads(name: str) -> None:
    dtype = numpy_dtype(name)
    if dtype is None:
        assert name in TORCH_ONLY or name[-1] in "3567" or name in {"float128", "complex256"}
        return
    raw = patterns(name, (500,))
    if name == "bool":
        raw &= 1
    with np.errstate(all="ignore"):
        found = widened(name, raw)
        assert found is not None
        np.testing.assert_array_equal(found, raw.view(dtype).astype(found.dtype))


@pytest.mark.parametrize("name", [*TABLE, *ODD_NAMES])
def test_names_survive_numpy(name: str) -> None:
    dtype = numpy_dtype(name)
    if dtype is not None:
        assert name_of(dtype) == name
        assert dtype.itemsize == dtype_named(name).itemsize


@pytest.mark.parametrize("name", [*TABLE, *ODD_NAMES, "<U0", "|S0"])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4), (5,)])
def test_safetensors_keeps_what_the_table_says(name: str, shape: tuple[int, ...]) -> None:
    code, stored_shape = stored(name, shape)
    raw = patterns(name, shape)
    header = msgspec.json.encode({"x": {"dtype": code, "shape": stored_shape, "data_offsets": (0, raw.size)}})
    read: Any = deserialize
    ((_, found),) = read(len(header).to_bytes(8, "little") + header + raw.tobytes())
    assert found["dtype"] == code
    assert bytes(found["data"]) == raw.tobytes()
    assert raw.size == nbytes(name, shape)


@pytest.mark.parametrize(
    "name",
    [
        "float99",
        "",
        "object",
        "|O8",
        "O",
        "<U",
        "<U-1",
        "<U1x",
        ">U3",
        "<f4",
        "|V",
        "<M8[zz]",
        "<M8[0s]",
        "[",
        "[1]",
        '[["a"]]',
        '[["a","|O8"]]',
        '[["a","<f4",[-1]]]',
        '[["a","<f4",[1.5]]]',
        '{"a":1}',
        "<U999999999",
        "|V2147483648",
        '[["a","<f4",[2147483648]]]',
        '[["a","<f4",[' + "1," * 99 + "1]]]",
        '[["a","<f4",[true]]]',
        "float32 ",
        "os.system",
        '[["a",' * 12 + '"<f4"' + "]]" * 12,
    ],
)
def test_what_is_no_dtype_is_said_to_be_none(name: str) -> None:
    with pytest.raises(UnknownDtype, match="expected"):
        dtype_named(name)


@pytest.mark.parametrize("shape", [(1,) * 65, (2**62,) * 100_000, (0, 2**62, 2**62), (2**63,), (2**61, 4)])
def test_a_shape_that_nobody_can_hold_is_damage_and_known_at_once(shape: tuple[int, ...]) -> None:
    with pytest.raises(Damaged, match=r"dimensions|63 bits"):
        nbytes("float32", shape)


@pytest.mark.parametrize("name", ["<U0", "|S0", "|V0", "[]"])
def test_elements_without_bytes_take_none(name: str) -> None:
    tensor = Tensor(dtype=name, shape=(2, 1 << 50), data=memoryview(b""))
    made = value_of(tensor)
    assert (made.nbytes, made.shape, tensor_of(made).dtype) == (0, (2, 1 << 50), name)


@given(st.text(max_size=30))
def test_no_name_crashes_the_table(name: str) -> None:
    try:
        found = dtype_named(name)
    except UnknownDtype:
        return
    assert found.name == name


@pytest.mark.slow
@given(
    st.recursive(
        st.sampled_from(["<f4", "|i1", ">u2", "|S3", "<U2", "<M8[ns]", "|b1", "<c8"]),
        lambda inner: st.lists(
            st.tuples(st.sampled_from(["a", "b", "ü"]), inner), min_size=1, max_size=3, unique_by=lambda field: field[0]
        ).map(lambda fields: [list(f) for f in fields]),
        max_leaves=6,
    ).filter(lambda form: isinstance(form, list))
)
def test_structured_dtypes_survive_their_name(form: list[Any]) -> None:
    import msgspec

    name = msgspec.json.encode(form).decode()
    dtype = numpy_dtype(name)
    assert dtype is not None
    assert name_of(dtype) == name
    assert dtype.itemsize == dtype_named(name).itemsize


def test_floats_of_16_bits_and_more_are_as_torch_has_them(torch: Any) -> None:
    from torch.testing._comparison import default_tolerances

    known = [name for name in torch_dtypes(torch) if TABLE[name].layout and TABLE[name].width >= 16]
    assert "bfloat16" in known
    for name in known:
        found = for_dtype(name)
        assert (found.rtol, found.atol) == default_tolerances(getattr(torch, name)), name


@pytest.mark.parametrize("name", ["bool", "int4", "int64", "uint8", "bits8", "float8_e8m0fnu", *ODD_NAMES])
def test_what_is_exact(name: str) -> None:
    found = for_dtype(name)
    assert (found.rtol, found.atol, found.origin) == (0, 0, "dtype")


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float6_e2m3fn", "float4_e2m1fn"])
def test_small_floats_may_be_a_step_apart_and_not_three(name: str) -> None:
    of, found = TABLE[name], for_dtype(name)
    values = [float(x) for x in table_of(name)[: 1 << (of.width - 1)]]
    finite = [x for x in values if x == x and x < float("inf")]  # noqa: PLR0124

    def allowed(expected: float, actual: float) -> bool:
        return abs(actual - expected) <= found.atol + found.rtol * abs(expected)

    assert all(allowed(x, y) and allowed(y, x) for x, y in pairwise(finite))
    assert not all(allowed(x, y) for x, y in zip(finite, finite[3:], strict=False))


def test_what_is_given_holds_and_the_rest_is_the_wider_default() -> None:
    found = tolerance_for("float32", "bfloat16", None, 0.5, equal_nan=True)
    assert (found.rtol, found.atol, found.equal_nan, found.origin) == (1.6e-2, 0.5, True, "given")
    assert tolerance_for("float32", "float32", 0, 0, equal_nan=False).rtol == 0


@pytest.mark.parametrize("given", [-1e-9, float("nan"), float("inf"), 10**400, "much"])
def test_what_is_no_tolerance_is_told_by_its_name(given: Any) -> None:
    for name, both in (("rtol", (given, None)), ("atol", (None, given))):
        with pytest.raises(ValueError, match=f"^{name}: expected a finite number >= 0, found "):
            tolerance_for("float32", "float32", *both, equal_nan=False)


@pytest.mark.parametrize("name", TABLE)
def test_every_dtype_has_a_default(name: str) -> None:
    assert for_dtype(name).rtol >= 0
