"""jax arrays there and back: every dtype it has, wide ones included, and one that is spread over devices."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from factories.bit_patterns import patterns, tensor
from karat.tensors.arrays import is_tensor, tensor_of, value_and_note, value_of
from karat.tensors.tensor import CannotStore

NAMES = [
    "bool",
    "int2",
    "int4",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint2",
    "uint4",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float4_e2m1fn",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e4m3b11fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "bfloat16",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 2)])
def test_every_dtype_comes_back_bit_by_bit(jax: Any, name: str, shape: tuple[int, ...]) -> None:
    made = tensor(name, shape, framework="jax")
    if name == "bool":
        raw = patterns(name, shape) & 1
        made = type(made)(dtype=name, shape=shape, data=raw.data, framework="jax")
    value, note = value_and_note(made)
    assert note is None
    assert isinstance(value, jax.Array)
    assert (value.dtype.name, value.shape) == (name, shape)
    again = tensor_of(value)
    assert (again.dtype, again.framework, again.device) == (name, "jax", "cpu")
    assert bytes(again.data) == bytes(made.data)


def test_a_dtype_that_jax_does_not_have_is_numpy_with_a_note(jax: Any) -> None:
    assert jax.__version__
    for name in ("<M8[ns]", "float80"):
        value, note = value_and_note(tensor(name), "jax")
        assert type(value) is np.ndarray
        assert note is not None
        assert name in note


def test_random_keys_are_refused_with_what_to_pass(jax: Any) -> None:
    key = jax.random.key(0)
    assert is_tensor(key)
    with pytest.raises(CannotStore, match="key_data"):
        tensor_of(key)
    assert value_of(tensor_of(jax.random.key_data(key))).tolist() == [0, 0]


def test_tracers_are_refused(jax: Any) -> None:
    def look(x: Any) -> Any:
        with pytest.raises(CannotStore, match="tracer"):
            tensor_of(x)
        return x

    assert jax.jit(look)(1.0) == 1


def test_donated_memory_is_refused(jax: Any) -> None:
    value = jax.numpy.ones(3)
    value.delete()
    with pytest.raises(CannotStore, match="donated or deleted"):
        tensor_of(value)


@pytest.mark.slow
def test_an_array_spread_over_devices_is_brought_together(jax: Any) -> None:
    assert jax.__version__
    code = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from karat.tensors.arrays import tensor_of
assert len(jax.devices()) == 4
mesh = Mesh(np.array(jax.devices()), ("x",))
value = jax.device_put(np.arange(8, dtype=np.float32), NamedSharding(mesh, PartitionSpec("x")))
made = tensor_of(value)
assert bytes(made.data) == np.arange(8, dtype=np.float32).tobytes()
assert made.device == "cpu:0,cpu:1,cpu:2,cpu:3", made.device
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env={**os.environ, **flags})
