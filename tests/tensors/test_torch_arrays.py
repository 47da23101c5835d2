"""torch tensors there and back: every dtype, every layout, every bit; what has no form is refused."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from factories.bit_patterns import patterns, tensor, torch_dtypes, torch_value
from karat.tensors.arrays import is_tensor, tensor_of, value_and_note, value_of
from karat.tensors.tensor import CannotStore

SHAPES = [(3, 4), (), (0, 2), (1,), (2, 3, 4)]


def test_every_dtype_comes_back_bit_by_bit(torch: Any) -> None:
    names = list(torch_dtypes(torch))
    assert {"bfloat16", "float8_e4m3fn", "float8_e5m2fnuz", "complex32", "uint64", "bool"} <= {*names}
    for name in names:
        for shape in SHAPES:
            value = torch_value(torch, name, shape)
            made = tensor_of(value)
            assert (made.dtype, made.shape, made.framework, made.device) == (name, shape, "torch", "cpu")
            assert bytes(made.data) == patterns(name, shape).tobytes(), name
            back = value_of(made)
            assert (back.dtype, tuple(back.shape)) == (value.dtype, shape)
            assert bytes(tensor_of(back).data) == bytes(made.data), name


def test_every_layout_comes_back_with_its_strides(torch: Any) -> None:
    for name in torch_dtypes(torch):
        value = torch_value(torch, name, (2, 3, 4)).permute(2, 0, 1)
        made = tensor_of(value)
        back = value_of(made)
        assert back.stride() == value.stride() == made.strides
        assert bytes(tensor_of(back).data) == bytes(made.data), name


@pytest.mark.parametrize(
    "cut",
    [
        lambda x: x[::2],
        lambda x: x[:, 1:3],
        lambda x: x.T,
        lambda x: x.expand(2, 3, 4),
        lambda x: x[1],
        lambda x: x.flatten()[3],
        lambda x: x.to_sparse().to_dense(),
        lambda x: x.unsqueeze(1),
    ],
)
def test_views_are_what_they_show(torch: Any, cut: Callable[[Any], Any]) -> None:
    view = cut(torch.arange(12.0).reshape(3, 4))
    back = value_of(tensor_of(view))
    assert torch.equal(back, view)
    assert bytes(tensor_of(view).data) == view.contiguous().numpy().tobytes()


def test_channels_last_stays_so(torch: Any) -> None:
    image = torch.arange(48.0).reshape(2, 2, 3, 4).contiguous(memory_format=torch.channels_last)
    back = value_of(tensor_of(image))
    assert back.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(back, image)


def test_hostile_strides_are_not_followed(torch: Any) -> None:
    import msgspec

    made = msgspec.structs.replace(tensor("float32", framework="torch"), strides=(1 << 40, 1))
    assert value_of(made).stride() == (4, 1)
    assert isinstance(value_of(made), torch.Tensor)


def test_lazy_conjugates_and_negatives_are_resolved(torch: Any) -> None:
    value = torch.tensor([1 + 2j, 3 - 4j])
    assert bytes(tensor_of(value.conj()).data) == np.array([1 - 2j, 3 + 4j], "c8").tobytes()
    negative = value.conj().imag
    assert negative.is_neg()
    assert bytes(tensor_of(negative).data) == np.array([-2, 4], "f4").tobytes()


def test_gradients_parameters_and_inference_are_no_hindrance(torch: Any) -> None:
    leaf = torch.ones(2, requires_grad=True)
    parameter = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    with torch.inference_mode():
        inferred = torch.ones(2)
    for value in (leaf, leaf * 2, parameter, inferred, torch.nn.Buffer(torch.ones(2))):
        made = tensor_of(value)
        assert bytes(made.data) == value.detach().clone().numpy().tobytes()
        assert not value_of(made).requires_grad


def test_contiguous_memory_is_not_copied(torch: Any) -> None:
    value = torch.zeros(4)
    made = tensor_of(value)
    value[0] = 1
    assert bytes(made.data) == value.numpy().tobytes()


def test_bytes_of_a_caller_may_be_taken_over(torch: Any) -> None:
    raw = np.zeros(16, np.uint8)
    made = tensor("float32", (4,), framework="torch")
    made = type(made)(dtype="float32", shape=(4,), data=raw.data, framework="torch")
    value = value_of(made, copy=False)
    value[0] = 1.0
    assert isinstance(value, torch.Tensor)
    assert raw.view("f4")[0] == 1


def odd(torch: Any) -> dict[str, Any]:
    """What looks like a tensor and is none, by a word of the refusal."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "sparse_coo": torch.eye(3).to_sparse(),
            "sparse_csr": torch.eye(3).to_sparse_csr(),
            "quantizer": torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8),
            "on meta": torch.ones(2, device="meta"),
            "FakeTensor": fake,
            "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
            "mkldnn": torch.ones(2, 3).to_mkldnn(),
        }


def test_what_has_no_memory_of_its_own_is_refused_in_a_sentence(torch: Any) -> None:
    for word, value in odd(torch).items():
        assert is_tensor(value)
        with pytest.raises(CannotStore, match=f"expected .*{word}"):
            tensor_of(value)


def test_wrappers_are_refused(torch: Any) -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    with pytest.raises(CannotStore, match="TwoTensor"):
        tensor_of(TwoTensor(torch.ones(2), torch.ones(2)))


def test_inside_a_transform_there_is_nothing_to_store(torch: Any) -> None:
    seen = []

    def look(x: Any) -> Any:
        with pytest.raises(CannotStore, match="expected a torch tensor whose memory can be read"):
            tensor_of(x)
        seen.append(x)
        return x.sum()

    torch.vmap(look)(torch.ones(3, 2))
    torch.func.grad(look)(torch.ones(2))
    assert len(seen) == 2


def test_numpy_in_torch_and_what_torch_does_not_have(torch: Any) -> None:
    assert isinstance(value_of(tensor("float32"), "torch"), torch.Tensor)
    value, note = value_and_note(tensor("<U7"), "torch")
    assert type(value) is np.ndarray
    assert note is not None
    assert "<U7" in note


@pytest.mark.slow
def test_no_framework_is_imported_to_look_at_a_value() -> None:
    code = (
        "import sys; from karat.tensors.arrays import *; import numpy as np\n"
        "assert is_tensor(np.ones(2)) and not is_tensor(3); tensor_of(np.ones(2)); value_of(tensor_of(np.ones(2)))\n"
        "assert not {'torch', 'jax', 'ml_dtypes'} & sys.modules.keys(), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
