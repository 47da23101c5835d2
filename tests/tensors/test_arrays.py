"""Arrays of libraries that karat does not know, through DLPack and `__array__`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from karat.tensors.arrays import is_tensor, tensor_of, value_of
from karat.tensors.tensor import CannotStore


class Dlpack:
    """An array of a library that only speaks DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Arraylike:
    """An array of a library that only speaks numpy."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.array, dtype)


class Broken:
    """A library that promises an array and fails."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("the device is gone")


@pytest.mark.parametrize("wrap", [Dlpack, Arraylike])
def test_protocols_hand_over_every_bit(wrap: Any) -> None:
    array = np.array([[1.5, -0.0], [np.nan, np.inf]], "f4")
    value = wrap(array)
    assert is_tensor(value)
    made = tensor_of(value)
    assert (made.dtype, made.shape, made.framework) == ("float32", (2, 2), "numpy")
    assert value_of(made).tobytes() == array.tobytes()


def test_a_dtype_that_numpy_cannot_take_over_goes_through_torch(torch: Any) -> None:
    value = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    made = tensor_of(Dlpack(value))
    assert (made.dtype, made.framework) == ("bfloat16", "numpy")
    assert bytes(made.data) == bytes(tensor_of(value).data)


def test_a_library_that_fails_is_named_with_its_words() -> None:
    with pytest.raises(CannotStore, match=r"Broken .*the device is gone"):
        tensor_of(Broken())


def test_an_object_that_gives_objects_is_refused() -> None:
    with pytest.raises(CannotStore, match="expected an array"):
        tensor_of(Arraylike([object()]))


def test_a_class_is_no_array() -> None:
    assert not is_tensor(Arraylike)
    assert not is_tensor(np.ndarray)
