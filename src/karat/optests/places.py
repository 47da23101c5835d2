"""Places: where an op test computes, whatever its framework calls it, and what to say when it is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_PADDLE = re.compile(r"Place\(([^)]*)\)")
_GPU = {"torch": "cuda", "paddle": "gpu", "jax": "gpu"}


def device_name(place: Any, framework: str) -> str:
    """`cpu` or `cuda:0`, in the framework's own words; no place is the CPU."""
    if place is None:
        return "cpu"
    if hasattr(place, "platform") and hasattr(place, "id"):  # a device of jax
        return f"{place.platform}:{place.id}"
    text = str(place).strip().lower()
    found = _PADDLE.fullmatch(str(place).strip())
    text = found[1].lower() if found else text
    kind, colon, number = text.partition(":")
    if kind in {"gpu", "cuda"}:
        kind = _GPU.get(framework, kind)
    return f"{kind}{colon}{number}"


def why_absent(device: str, framework: str) -> str | None:
    """Why nothing can be computed there; None if it can."""
    if device.partition(":")[0] == "cpu":
        return None
    try:
        _reach(device, framework)
    except Exception as error:  # noqa: BLE001 - frameworks raise anything for a device that is not there
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return f"{framework} has no {device} here: {first[:200]}"
    return None


@contextmanager
def at(device: str, framework: str) -> Iterator[Any]:
    """Within it the framework computes there, eagerly; gives a tensor that lies there."""
    if framework == "paddle":
        from paddle.base import dygraph  # noqa: PLC0415 - a value of Paddle's is at hand

        with dygraph.guard(_paddle_place(device)):
            yield _reach(device, framework)
    else:
        yield _reach(device, framework)


def _reach(device: str, framework: str) -> Any:
    """A tensor on the device; whatever error there is if there is none."""
    if framework == "torch":
        import torch  # noqa: PLC0415

        return torch.zeros(1, device=device)
    if framework == "jax":
        import jax  # noqa: PLC0415

        kind, _, number = device.partition(":")
        return jax.device_put(0.0, jax.devices(kind)[int(number or 0)])
    if framework == "paddle":
        return _on_paddle(device)
    if device != "cpu":
        raise ValueError("it computes on the CPU alone")
    return None


def _on_paddle(device: str) -> Any:
    import paddle  # noqa: PLC0415
    from paddle.base import dygraph  # noqa: PLC0415

    with dygraph.guard(_paddle_place(device)):
        return paddle.zeros([1])


def _paddle_place(device: str) -> Any:
    import paddle  # noqa: PLC0415

    kind, _, number = device.partition(":")
    if kind == "cpu":
        return paddle.CPUPlace()
    if kind == "gpu":
        if not paddle.is_compiled_with_cuda():  # asked first: Paddle prints a page otherwise
            raise ValueError("this Paddle is built without CUDA")
        return paddle.CUDAPlace(int(number or 0))
    if kind not in paddle.device.get_all_custom_device_type():
        raise ValueError(f"no device of the kind {kind!r} is registered")
    return paddle.CustomPlace(kind, int(number or 0))
