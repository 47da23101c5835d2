"""Tensors on a CUDA device: every dtype torch has there, bit by bit, and comparing what lies on it.

Runs alone, on a machine that has no more than numpy, msgspec and torch (jax, where it has a GPU, too):
`PYTHONPATH=src python tests/tensors/cuda_round_trip.py`. pytest runs it through test_cuda.py.
"""

from __future__ import annotations

import sys
import warnings
from math import prod
from typing import Any

import numpy as np

from karat.tensors.arrays import is_tensor, tensor_of, value_of
from karat.tensors.compare import compare_tensors
from karat.tensors.digests import digest_of
from karat.tensors.dtypes import TABLE, nbytes

SHAPES: tuple[tuple[int, ...], ...] = ((3, 4), (), (0, 2), (2, 3, 5), (1000, 1001))


def names(torch: Any) -> list[str]:
    """The dtypes of torch that karat knows."""
    return [name for name in TABLE if isinstance(getattr(torch, name, None), torch.dtype)]


def patterns(name: str, shape: tuple[int, ...]) -> Any:
    """Random bits: NaN with payloads, −0.0 and subnormals among them."""
    return np.random.default_rng(len(name)).integers(0, 256, nbytes(name, shape), dtype=np.uint8)


def on_device(torch: Any, name: str, shape: tuple[int, ...], device: str) -> Any:
    """Random bits as a tensor of the device; moved there as bytes, so that nothing else touches them."""
    dtype = getattr(torch, name)
    if not prod(shape):
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.from_numpy(patterns(name, shape)).to(device).view(dtype).reshape(shape)


def check_round_trip(torch: Any, name: str, device: str) -> None:
    """To the host and back, in every shape; strided views as well."""
    for shape in SHAPES:
        value = on_device(torch, name, shape, device)
        assert is_tensor(value)
        made = tensor_of(value)
        assert (made.dtype, made.shape, made.framework) == (name, shape, "torch")
        assert made.device.startswith(device.partition(":")[0]), made.device
        assert bytes(made.data) == patterns(name, shape).tobytes(), (name, shape)
        back = value_of(made)
        assert (back.dtype, back.device.type, tuple(back.shape)) == (value.dtype, "cpu", shape)
        assert bytes(tensor_of(back).data) == bytes(made.data), (name, shape)
    view = on_device(torch, name, (2, 3, 5), device).permute(2, 0, 1)[1:, :, ::2]
    host = on_device(torch, name, (2, 3, 5), "cpu").permute(2, 0, 1)[1:, :, ::2]
    assert bytes(tensor_of(view).data) == bytes(tensor_of(host).data), name
    assert digest_of(tensor_of(view)) == digest_of(tensor_of(host)), name


def check_comparing(torch: Any, device: str) -> None:
    """What lies on the device is compared with what lies on the host, and with itself."""
    host = torch.randn(1000, 1000, generator=torch.Generator().manual_seed(0))
    there = host.to(device, copy=True)
    assert compare_tensors("x", tensor_of(host), tensor_of(there), rtol=0, atol=0).passed
    there[12, 34] += 1
    result = compare_tensors("x", tensor_of(host), tensor_of(there))
    assert result.numbers is not None
    assert (result.numbers.mismatches, result.numbers.first_mismatch) == (1, (12, 34))
    there[0, 0] = float("nan")
    spoiled = compare_tensors("x", tensor_of(host), tensor_of(there))
    assert [finding.kind for finding in spoiled.findings] == ["new-nan", "tensor-mismatch"]
    product = compare_tensors("x", tensor_of(host @ host), tensor_of(host.to(device) @ host.to(device)))
    assert product.numbers is not None
    assert product.numbers.cosine is not None
    assert product.numbers.cosine > 0.9999


def check_lazy(torch: Any, device: str) -> None:
    """Conjugates, negatives, gradients and parameters on the device."""
    value = torch.tensor([1 + 2j, 3 - 4j], device=device)
    assert bytes(tensor_of(value.conj()).data) == np.array([1 - 2j, 3 + 4j], "c8").tobytes()
    assert bytes(tensor_of(value.conj().imag).data) == np.array([-2, 4], "f4").tobytes()
    parameter = torch.nn.Parameter(torch.ones(2, device=device))
    assert bytes(tensor_of(parameter * 2).data) == np.array([2, 2], "f4").tobytes()


def check_jax() -> str:
    """The same for jax, where it is installed and sees a device."""
    try:
        import jax
    except ImportError:
        return "jax: not installed"
    platform = jax.devices()[0].platform
    with jax.enable_x64(True):
        for name in ("float32", "bfloat16", "float64", "int64", "complex128", "float8_e4m3fn", "int4", "bool"):
            bits = patterns(name, (40, 5))
            bits &= {"int4": 15, "bool": 1}.get(name, 255)
            array = bits.view(jax.numpy.dtype(name)).reshape(40, 5)
            made = tensor_of(jax.device_put(array, jax.devices()[0]))
            assert bytes(made.data) == bits.tobytes(), name
            assert made.device.startswith(platform), made.device
    return f"jax {jax.__version__} on {platform}: 8 dtypes"


def main() -> int:
    """Runs all of it, and says on what."""
    import torch

    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    said = torch.cuda.get_device_name(0) if device != "cpu" else "no CUDA device; the CPU instead"
    print(f"torch {torch.__version__} on {said}")
    failed = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # half complex is experimental
        for name in names(torch):
            try:
                check_round_trip(torch, name, device)
            except Exception as error:  # noqa: BLE001 - the next dtype is to be tried as well
                failed += 1
                print(f"FAILED {name}: {type(error).__name__}: {error}")
        check_lazy(torch, device)
        check_comparing(torch, device)
    print(f"{len(names(torch)) - failed} of {len(names(torch))} dtypes bit by bit, in {len(SHAPES)} shapes and a view")
    print(check_jax())
    return 1 if failed or device == "cpu" else 0


if __name__ == "__main__":
    sys.exit(main())
