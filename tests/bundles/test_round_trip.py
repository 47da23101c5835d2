"""Every dtype and structure, on every framework: captured, opened in a folder and in a zip, and bit-exact."""

from __future__ import annotations

import importlib
import importlib.util
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from conftest import missing
from factories.archives import zipped
from factories.captured import capture, identity
from factories.nested import CLASSES, nested, same
from karat.bundles.cases import cases
from karat.bundles.places import open_place
from karat.bundles.verify import verify_place

SETTINGS = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
NUMPY = (
    "?",
    "i1",
    "u1",
    "<i2",
    ">i2",
    "<u2",
    ">u2",
    "<i4",
    ">i4",
    "<u4",
    "<i8",
    ">i8",
    "<u8",
    "<f2",
    ">f2",
    "<f4",
    ">f4",
    "<f8",
    ">f8",
    "<c8",
    ">c8",
    "<c16",
    "g",
    "G",
    "<M8[ns]",
    ">M8[D]",
    "<m8[us]",
    "<U5",
    ">U3",
    "S4",
    "V7",
)
STRUCTURED = np.dtype([("a", "<f4"), ("b", ">i2", (2,)), ("c", [("d", "?")])])
SMALL = (
    "bfloat16",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
    "int2",
    "int4",
    "uint2",
    "uint4",
)


def bits(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Any bits at all: NaN payloads, negative zeros, subnormals."""
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    data = np.random.default_rng(seed).bytes(size)
    return np.frombuffer(data, dtype).reshape(shape) if dtype.itemsize else np.zeros(shape, dtype)


def arranged(array: Any, how: str) -> Any:
    """The same kind of array without C order."""
    if how == "transposed":
        return array.T
    if how == "reversed" and array.ndim:
        return array[::-1]
    return array[..., ::2] if how == "strided" and array.ndim else array


def installed(name: str) -> Any:
    """A framework, if it is here."""
    return importlib.import_module(name) if importlib.util.find_spec(name) else missing(name)


def round_trips(root: Path, inputs: Any, expected: Any, **changes: Any) -> None:
    """Captured, verified and restored from a folder, a stored zip and a deflated one."""
    folder = capture(root / "captured", identity(), inputs=inputs, expected=expected, **changes)
    files = {
        str(path.relative_to(root / "captured")): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    places = [root / "captured", folder]
    for compress in (False, True):
        places.append(root / f"{compress}.zip")
        places[-1].write_bytes(zipped(files, compress=compress))
    for where in places:
        place = open_place(where)
        assert verify_place(place).findings == ()
        (case,) = cases(place)
        for role, value in ((case.inputs, inputs), (case.expected, expected)):
            restored = role(classes=CLASSES)
            assert restored.findings == ()
            assert same(restored.value, value), (restored.value, value)
        place.close()


def test_what_was_channels_last_is_channels_last(tmp_path: Path) -> None:
    torch = installed("torch")
    image = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last)
    single = torch.ones(2, 1, 4, 5).to(memory_format=torch.channels_last)
    given = {"image": image, "single": single, "array": np.ones((3, 4)).T, "cut": image[:, :2]}
    capture(tmp_path, identity(), inputs=given, expected=image.permute(3, 2, 1, 0))
    (case,) = cases(open_place(tmp_path))
    found = case.inputs().value
    assert found["image"].is_contiguous(memory_format=torch.channels_last)
    assert [found[name].stride() for name in ("image", "single")] == [image.stride(), single.stride()]
    assert found["array"].strides == given["array"].strides
    assert found["cut"].is_contiguous()
    assert case.expected().value.stride() == image.permute(3, 2, 1, 0).stride()


@pytest.mark.slow
@SETTINGS
@given(
    name=st.sampled_from(NUMPY),
    shape=SHAPES,
    seed=st.integers(0, 2**32),
    how=st.sampled_from(["plain", "transposed", "reversed", "strided"]),
)
def test_numpy_arrays_of_every_dtype(
    tmp_path_factory: pytest.TempPathFactory, name: str, shape: tuple[int, ...], seed: int, how: str
) -> None:
    dtype = np.dtype(name)
    array = bits(dtype, shape, seed)
    if dtype.kind == "U":
        array = np.array(["é\x00x", "", "日本語テ"], dtype)[np.resize([seed % 3, 1, 2], shape)]
    elif dtype.kind == "b":
        array = (bits(np.dtype("u1"), shape, seed) & 1).astype(bool)
    elif dtype.char in "gG":
        array = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    root = tmp_path_factory.mktemp("numpy")
    value = arranged(array, how)
    scalar = array.reshape(-1)[0] if array.size else np.float32(-0.0)
    round_trips(root, (value, scalar), {"same": array}, raw=seed % 2 == 0)


@pytest.mark.parametrize("name", SMALL)
def test_numpy_arrays_of_small_dtypes(tmp_path: Path, name: str) -> None:
    dtype = np.dtype(getattr(installed("ml_dtypes"), name))
    whole = np.arange(256, dtype=np.uint8)
    if name == "bfloat16":
        every = np.arange(65536, dtype=np.uint16).view(dtype)
    else:
        width = int(name.removeprefix("u").removeprefix("int").removeprefix("float")[0])
        every = (whole[: 1 << width] if width < 8 else whole).view(dtype)
    round_trips(tmp_path, (every, every[:1].reshape(()), every[:0]), every[::2], raw=True)


def test_structured_arrays(tmp_path: Path) -> None:
    array = bits(STRUCTURED, (3,), 1).copy()
    array["c"]["d"] = [True, False, True]
    round_trips(tmp_path, array, array[0], raw=True)


ARRAYS = st.builds(
    bits, st.sampled_from([np.dtype(name) for name in ("<f4", ">f8", "<i2")]), SHAPES, st.integers(0, 99)
)


@pytest.mark.slow
@SETTINGS
@given(inputs=nested(ARRAYS), expected=nested(ARRAYS))
def test_nested_values(tmp_path_factory: pytest.TempPathFactory, inputs: Any, expected: Any) -> None:
    round_trips(tmp_path_factory.mktemp("nested"), inputs, expected)


def torch_dtypes() -> list[Any]:
    torch = installed("torch")
    names = (
        "bool",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex32",
        "complex64",
        "complex128",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float4_e2m1fn_x2",
    )
    return [getattr(torch, name) for name in names if hasattr(torch, name)]


def torch_tensor(dtype: Any, shape: tuple[int, ...], seed: int) -> Any:
    torch = installed("torch")
    count = int(np.prod(shape, dtype=int)) * dtype.itemsize
    data = torch.frombuffer(bytearray(np.random.default_rng(seed).bytes(count)) or bytearray(1), dtype=torch.uint8)[
        :count
    ]
    if dtype is torch.bool:
        data = data & 1
    return data.view(dtype).reshape(shape)


def test_torch_tensors_of_every_dtype(tmp_path: Path) -> None:
    tensors = [torch_tensor(dtype, shape, 7) for dtype in torch_dtypes() for shape in ((), (0, 2), (3, 4), (2, 1, 3))]
    views = [tensor.T for tensor in tensors if tensor.dim() == 2]
    round_trips(tmp_path, tensors, {"views": tuple(views)}, raw=True)


def test_torch_values_of_every_kind(tmp_path: Path) -> None:
    torch = installed("torch")
    x = torch.arange(12.0).reshape(3, 4)
    inputs = {
        "parameter": torch.nn.Parameter(torch.ones(2)).detach(),
        "expanded": torch.ones(1).expand(5),
        "sliced": x[:, 1::2],
        "channels last": torch.ones(1, 2, 3, 4).to(memory_format=torch.channels_last),
        "size": x.shape,
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "layout": torch.strided,
        "format": torch.channels_last,
        "conjugate": torch.ones(2, dtype=torch.complex64).mul(1j).conj().resolve_conj(),
    }
    round_trips(tmp_path, inputs, torch.topk(x, 2))


def test_torch_tensors_of_a_cuda_device_come_back_with_their_bits(tmp_path: Path) -> None:
    torch = installed("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    here = [torch_tensor(dtype, (3, 4), 7) for dtype in torch_dtypes()]
    there = [tensor.cuda() for tensor in here]
    capture(tmp_path, identity(), inputs=there, expected=[tensor.T for tensor in there], raw=True)
    (case,) = cases(open_place(tmp_path))
    assert {record.device for record in case.manifest.tensors} == {"cuda:0"}
    assert same(case.inputs().value, here)
    assert same(case.expected().value, [tensor.T for tensor in here])
    assert verify_place(case.place).findings == ()


@pytest.mark.slow
def test_jax_arrays_of_every_dtype(tmp_path: Path) -> None:
    jax, jnp = installed("jax"), installed("jax.numpy")
    names = (
        "bool_",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "float16",
        "bfloat16",
        "float32",
        "complex64",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "int4",
        "uint4",
    )
    arrays = [jnp.arange(6).reshape(shape).astype(getattr(jnp, name)) for name in names for shape in ((6,), (2, 3))]
    arrays += [jnp.zeros((0, 2)), jnp.float32(jnp.nan), jnp.arange(6).reshape(2, 3).T]
    assert all(isinstance(array, jax.Array) for array in arrays)
    round_trips(tmp_path, arrays, {"x": arrays[3], "y": (arrays[-1],)}, raw=True)


@pytest.mark.slow
def test_jax_arrays_of_64_bits_come_back_where_jax_allows_them(tmp_path: Path) -> None:
    jax, jnp = installed("jax"), installed("jax.numpy")
    with jax.enable_x64(True):
        arrays = tuple(jnp.arange(4).astype(d) for d in ("int64", "uint64", "float64", "complex128"))
        assert arrays[2].dtype == np.float64
        round_trips(tmp_path, arrays, arrays[0])


@pytest.mark.slow
@SETTINGS
@given(data=st.data())
def test_any_torch_tensors_in_any_structure(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    leaves = st.builds(
        lambda dtype, shape, seed, how: arranged(torch_tensor(dtype, shape, seed), how),
        st.sampled_from(torch_dtypes()),
        SHAPES,
        st.integers(0, 99),
        st.sampled_from(["plain", "strided"]),
    )
    values = data.draw(st.tuples(leaves, nested(leaves)))
    round_trips(tmp_path_factory.mktemp("torch"), values, values[0], raw=True)


@pytest.mark.slow
@SETTINGS
@given(data=st.data())
def test_any_jax_arrays_in_any_structure(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    jnp, small = installed("jax").numpy, installed("ml_dtypes")
    dtypes = [np.dtype(name) for name in ("i1", "u1", "i2", "u2", "i4", "u4", "f2", "f4", "c8")]
    # jax has names for 6 and 4 bits, too, and XLA no such arrays on a CPU.
    known = [name for name in SMALL if not name.startswith(("float6", "float4"))]
    dtypes += [np.dtype(getattr(small, name)) for name in known if hasattr(jnp, name)]
    assert len(dtypes) > 16
    leaves = st.builds(
        lambda dtype, shape, seed: jnp.asarray(bits(dtype, shape, seed)),
        st.sampled_from(dtypes),
        SHAPES,
        st.integers(0, 99),
    )
    values = data.draw(st.tuples(leaves, nested(leaves)))
    round_trips(tmp_path_factory.mktemp("jax"), values, values[0], raw=True)


def test_a_zip_with_several_methods_is_one_place(tmp_path: Path) -> None:
    folder = capture(tmp_path / "captured", identity(), raw=True)
    with zipfile.ZipFile(tmp_path / "mixed.zip", "w") as archive:
        for number, path in enumerate(sorted(folder.rglob("*"))):
            if path.is_file():
                method = zipfile.ZIP_DEFLATED if number % 2 else zipfile.ZIP_STORED
                archive.write(path, path.relative_to(tmp_path / "captured"), method)
    place = open_place(tmp_path / "mixed.zip")
    told = verify_place(place)
    assert (told.cases, told.tensors, told.findings) == (1, 3, ())
