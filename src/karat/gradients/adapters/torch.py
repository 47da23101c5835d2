"""torch: real autograd, forward-mode AD, on the device of the tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from importlib import import_module
from threading import RLock
from typing import Any, cast

import numpy as np

from karat.gradients.adapters import Adapter, DrewRandom, FlatFunction, Linearised, copied, gradients_of, graph_nodes
from karat.gradients.problem import Array, Unsupported, error_line
from karat.tensors import device_array
from karat.tensors.arrays import is_torch

# Forward mode has one level in a process, and random numbers one state, whatever threads there are.
_ONE_AT_A_TIME = RLock()


_OWN = ("prims::", "rngprims::", "debug_mode_ops::")  # custom ops of torch's own
_AS_IT_IS: AbstractContextManager[object] = nullcontext()
_torch = cache(partial(import_module, "torch"))


class TorchAdapter(Adapter):
    name = "torch"

    def owns(self, value: object) -> bool:
        return is_torch(value)

    def dtype_of(self, value: Any) -> str:
        return str(value.dtype).removeprefix("torch.")

    def device_of(self, value: Any) -> str:
        return str(value.device)

    def refusal(self, value: Any) -> str:
        if value.is_meta:
            return "a tensor without numbers (device meta)"
        # A nested tensor says that it is strided, and is not.
        kind = "nested" if value.is_nested else str(value.layout).removeprefix("torch.")
        return "" if kind == "strided" else f"a tensor that is not dense ({kind})"

    def stored(self, value: Any) -> tuple[Any, Callable[[Any], Any]] | None:
        torch, layout = _torch(), value.layout
        if layout is torch.strided or value.is_nested:
            return None
        if layout is torch.sparse_coo:
            whole = value.detach().coalesce()
            at, made = [whole.indices()], partial(torch.sparse_coo_tensor, is_coalesced=True, check_invariants=True)
        else:
            whole, by_row = value.detach(), layout in {torch.sparse_csr, torch.sparse_bsr}
            at = [whole.crow_indices(), whole.col_indices()] if by_row else [whole.ccol_indices(), whole.row_indices()]
            made = partial(torch.sparse_compressed_tensor, layout=layout, check_invariants=True)
        return whole.values(), lambda values: made(*at, values, size=whole.shape)

    def dense(self, value: Any) -> Any:
        return value if value.layout is _torch().strided or value.is_nested else value.to_dense()

    def autocast(self, dtype: str, device: str) -> AbstractContextManager[object]:
        made: AbstractContextManager[object] = _torch().autocast(device.partition(":")[0], _dtype(dtype))
        return made

    def to_numpy(self, value: Any) -> Array:
        torch, value = _torch(), self.dense(value)  # the gradient of an embedding may be sparse
        if value.dtype is torch.float64 and value.is_cpu and value.numel() < device_array.LARGE:
            return np.array(value.numpy(force=True), order="C")
        wide = torch.complex128 if value.is_complex() else torch.float64
        # Dense, whatever the strides were, and always a copy: a function may return what it keeps.
        if device_array.stays(value):
            large = value.detach().to(wide, copy=True, memory_format=torch.contiguous_format)
            return cast("Array", device_array.DeviceArray(large))
        dense = value.detach().to("cpu", dtype=wide, copy=True, memory_format=torch.contiguous_format)
        array: Array = dense.numpy(force=True)
        return array

    def glance(self, value: Any) -> Array:
        torch = _torch()
        here = value.dtype in {torch.float64, torch.complex128} and value.is_cpu and value.layout is torch.strided
        return cast("Array", value.numpy(force=True)) if here else self.to_numpy(value)

    def from_numpy(self, array: Array, dtype: str, like: Any | None) -> Any:
        if device_array.on_device(array):
            there: Any = array
            return there.tensor.to(device=None if like is None else like.device, dtype=_dtype(dtype), copy=True)
        # Through memory of its own, in C order: torch takes no negative strides.
        made = _torch().from_numpy(np.array(array, order="C"))
        return made.to(made.device if like is None else like.device, _dtype(dtype))

    def lent(self, array: Array) -> Any:
        return _torch().from_numpy(array)

    def cast(self, value: Any, dtype: str) -> Any:
        return value.detach().to(dtype=_dtype(dtype), copy=True)

    def fresh(self, value: Any) -> Any:
        return value.detach().clone().requires_grad_(value.requires_grad)

    def function(self, fn: Callable[..., Any], dtype: str | None) -> Callable[..., Any]:
        is_module = isinstance(fn, _torch().nn.Module)
        return copied(fn, lambda own: own if dtype is None else own.to(_dtype(dtype))) if is_module else fn

    def parameters(self, fn: Callable[..., Any]) -> dict[str, Any]:
        torch = _torch()
        # Nothing can take the place of a compiled script's.
        if not isinstance(fn, torch.nn.Module) or isinstance(fn, torch.jit.ScriptModule):
            return {}
        return {name: one for name, one in fn.named_parameters() if one.requires_grad}

    def call_with(self, fn: Any, held: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return _torch().func.functional_call(fn, dict(held), tuple(args), dict(kwargs))

    def scope(self) -> AbstractContextManager[object]:
        # Tensors that are made in inference mode never have a gradient.
        torch = _torch()
        return torch.inference_mode(mode=False) if torch.is_inference_mode_enabled() else _AS_IT_IS

    @contextmanager
    def seeded(self, seed: int, device: str) -> Iterator[DrewRandom]:
        torch = _torch()
        generators = [torch.default_generator]
        if device.startswith("cuda"):
            index = torch.device(device).index
            at = torch.cuda.current_device() if index is None else index
            generators.append(torch.cuda.default_generators[at])
        with _ONE_AT_A_TIME:
            # Not torch.manual_seed: that initialises other devices.
            states = [one.get_state() for one in generators]
            try:
                for one in generators:
                    one.manual_seed(seed)
                begun = [one.get_state() for one in generators]
                yield lambda: not all(map(torch.equal, (one.get_state() for one in generators), begun))
            finally:
                for one, state in zip(generators, states, strict=True):
                    one.set_state(state)

    def jittered(self, size: float, seed: int) -> AbstractContextManager[object]:
        torch, generators = _torch(), {}

        def moved(saved: Any) -> Any:
            if not saved.is_floating_point() or saved.layout is not torch.strided:
                return saved
            if saved.device not in generators:
                generators[saved.device] = torch.Generator(saved.device).manual_seed(seed)
            drawn = torch.rand(saved.shape, generator=generators[saved.device], dtype=saved.dtype, device=saved.device)
            return saved.detach() * (1 + size * (2 * drawn - 1))

        hooks: AbstractContextManager[object] = torch.autograd.graph.saved_tensors_hooks(moved, lambda saved: saved)
        return hooks

    def forward(self, function: FlatFunction, inputs: Sequence[Any]) -> tuple[Any, ...]:
        # No input wants a gradient; but a function may take gradients of its own.
        torch = _torch()
        with _AS_IT_IS if torch.is_grad_enabled() else torch.enable_grad():
            return tuple([out.detach() for out in function(inputs)])

    def linearise(self, function: FlatFunction, inputs: Sequence[Any], wanted: Sequence[bool]) -> Linearised:
        leaves = [one.detach().requires_grad_(want) for one, want in zip(inputs, wanted, strict=True)]
        with _torch().enable_grad():
            outputs = function(leaves)
        asked = [leaf for leaf, want in zip(leaves, wanted, strict=True) if want]
        # Outputs without a graph have no part in it.
        return Linearised(
            tuple(out.detach() for out in outputs),
            lambda cotangents: _gradients(outputs, asked, cotangents, create_graph=False),
            tuple(outputs),
        )

    def pushforward(self, function: FlatFunction, inputs: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
        torch = _torch()
        ad = torch.autograd.forward_ad
        try:
            with _ONE_AT_A_TIME, warnings.catch_warnings(), ad.dual_level(), torch.enable_grad():
                # What torch says of its own scripts when forward mode is first used.
                warnings.filterwarnings("ignore", r".*torch\.jit", DeprecationWarning)
                # Leaves that want gradients, so that a function which takes some itself can be pushed through too.
                sides = zip(inputs, tangents, strict=True)
                duals = [ad.make_dual(one.detach().requires_grad_(), tangent) for one, tangent in sides]
                pairs = [ad.unpack_dual(out) for out in function(duals)]
                found = (torch.zeros_like(one.primal) if one.tangent is None else one.tangent for one in pairs)
                return tuple(one.detach() for one in found)
        except NotImplementedError as error:
            raise Unsupported(f"torch has no forward mode here: {error}") from error
        except RuntimeError as error:
            # In place: on what it takes for a view of the input, which reverse mode speaks of.
            if any(word in str(error) for word in ("forward AD", "forward mode AD", "jvp", "in-place operation")):
                raise Unsupported(f"torch has no forward mode here: {error}") from error
            raise

    def differentiated(self, function: FlatFunction, takes: int, gives: int) -> FlatFunction:
        torch = _torch()

        def gradient(inputs: Sequence[Any]) -> tuple[Any, ...]:
            with torch.enable_grad():
                leaves = [one if one.requires_grad else one.detach().requires_grad_() for one in inputs]
                outputs = function(leaves[:takes])
                given = [one.to(out.dtype) for one, out in zip(leaves[takes:], outputs, strict=True)]
                found = _gradients(outputs, leaves[:gives], given, create_graph=True)
            # torch puts an error into the graph of a once_differentiable backward, and never comes to it.
            if any(name.endswith("Error") for name in graph_nodes(found)):
                raise Unsupported("torch cannot differentiate this twice: it is once_differentiable")
            asked = zip(found, leaves[:gives], strict=True)
            return tuple(torch.zeros_like(leaf) if one is None else one for one, leaf in asked)

        return gradient

    def pushed(self, function: FlatFunction) -> FlatFunction:
        torch = _torch()

        def tangents(inputs: Sequence[Any]) -> tuple[Any, ...]:
            at, half = tuple(inputs[: len(inputs) // 2]), len(inputs) // 2
            along = tuple(one.to(where.dtype) for where, one in zip(at, inputs[half:], strict=True))
            try:
                # The one forward mode of torch's that nests.
                found: tuple[Any, ...] = torch.func.jvp(lambda *given: function(given), at, along)[1]
            except (NotImplementedError, RuntimeError) as error:
                raise Unsupported(f"torch has no forward mode here: {error}") from error
            return found

        return tangents

    def accumulate(
        self, function: FlatFunction, inputs: Sequence[Any], cotangents: Sequence[Any], held: Sequence[Any], times: int
    ) -> tuple[Any, ...]:
        torch = _torch()
        leaves = [one.detach().clone().requires_grad_() for one in inputs]
        for leaf, before in zip(leaves, held, strict=True):
            leaf.grad = before.clone()
        for _ in range(times):
            with torch.enable_grad():
                outputs = function(leaves)
            pairs = [(out, one) for out, one in zip(outputs, cotangents, strict=True) if out.requires_grad]
            if pairs:
                # `inputs` keeps gradients out of parameters that the function holds.
                torch.autograd.backward([out for out, _ in pairs], [one.clone() for _, one in pairs], inputs=leaves)
        return tuple(leaf.grad.detach() for leaf in leaves)

    def batched(
        self, function: FlatFunction, points: Sequence[Sequence[Any]], cotangents: Sequence[Sequence[Any]]
    ) -> tuple[list[tuple[Any, ...]], bool]:
        torch = _torch()
        given = tuple(torch.stack(each) for each in zip(*cotangents, strict=True))

        def pulled(inputs: Any, vectors: Any) -> Any:
            return torch.func.vjp(lambda *leaves: function(leaves), *inputs)[1](vectors)

        try:
            stacked = tuple(torch.stack(each) for each in zip(*points, strict=True))
            found, together = torch.func.vmap(pulled)(stacked, given), True
        except Exception:  # noqa: BLE001 - a Function without setup_context has no vmap of its forward, one of its backward
            leaves = [one.detach().requires_grad_() for one in points[0]]
            with torch.enable_grad():
                pairs = [(out, v) for out, v in zip(function(leaves), given, strict=True) if out.requires_grad]
            try:
                outputs, vectors = zip(*pairs, strict=True)
                found = torch.autograd.grad(outputs, leaves, vectors, is_grads_batched=True, allow_unused=True)
            except Exception as error:
                raise Unsupported(f"vmap cannot run this backward: {error}") from error
            together = False
        each = [tuple(None if one is None else one[n].detach() for one in found) for n in range(len(points))]
        return each, together

    def op_faults(self, function: FlatFunction, inputs: Sequence[Any]) -> list[str] | None:
        known = import_module("torch._library.custom_ops").OPDEFS
        if len(known) == _own_ops():  # as nearly always
            return None
        custom = {name for name in known if not name.startswith(_OWN)}
        torch, seen = _torch(), dict[Any, Any]()
        listener = _listener()()
        listener.heard = lambda op, *call: seen.setdefault(op, call) if op.name().partition(".")[0] in custom else None
        with listener:
            function(inputs)
        found = []
        for op, call in seen.items():
            args, kwargs = import_module("torch.utils._pytree").tree_map_only(torch.Tensor, _leaf, call)
            results = torch.library.opcheck(op, args, kwargs, raise_exception=False)
            found += [f"{op.name()} {test}: {error_line(why)}" for test, why in results.items() if why != "SUCCESS"]
        return found if seen else None

    def in_graph(self, value: Any) -> Any:
        return value.clone()

    def strided(self, value: Any) -> Any | None:
        if not value.numel() or not value.dim():
            return None
        torch = _torch()
        axes = tuple(reversed(range(value.dim())))
        shape = (*(value.shape[axis] for axis in axes), 2)
        gapped = torch.empty(shape, dtype=value.dtype, device=value.device)
        # What lies in the gaps must never be read, so it shows where it is.
        gapped[..., 1] = 7.0
        gapped[..., 0] = value.detach().permute(axes)
        return gapped[..., 0].permute(axes)

    def expanded(self, value: Any) -> Any | None:
        if value.numel() < 2:
            return None
        return value.detach().flatten()[0].clone().expand(value.shape)


def _gradients(
    outputs: Sequence[Any], leaves: Sequence[Any], cotangents: Sequence[Any | None], *, create_graph: bool
) -> tuple[Any, ...]:
    pairs = [(out, one) for out, one in zip(outputs, cotangents, strict=True) if one is not None and out.requires_grad]
    try:
        return gradients_of(_torch().autograd.grad, pairs, leaves, create_graph=create_graph)
    except RuntimeError as error:
        if "use_reentrant" in str(error):
            why = "reentrant checkpoints give gradients to .backward() alone"
            raise Unsupported(f"{why}; pass use_reentrant=False to checkpoint") from error
        raise


@cache
def _own_ops() -> int:
    return sum(name.startswith(_OWN) for name in import_module("torch._library.custom_ops").OPDEFS)


@cache
def _listener() -> Any:
    class Listener(import_module("torch.utils._python_dispatch").TorchDispatchMode):  # type: ignore[misc]
        heard: Callable[..., Any]

        def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.heard(func, args, kwargs or {})
            return func(*args, **(kwargs or {}))

    return Listener


@cache
def _leaf(value: Any) -> Any:
    one = value.detach().clone()
    return one.requires_grad_() if one.is_floating_point() or one.is_complex() else one


@cache
def _dtype(name: str) -> Any:
    found = getattr(_torch(), name, None)
    if not isinstance(found, _torch().dtype):
        raise Unsupported(f"torch {_torch().__version__} has no {name}")
    return found


ADAPTER = TorchAdapter()
