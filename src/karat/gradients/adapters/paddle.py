"""paddle: paddle.grad on the dynamic graph; there is no forward mode on it.

Kernels of Paddle's (cross, prelu, solve and more) end the process, or give a wrong gradient, if they are asked for the
gradients of some inputs alone. So what is bound is tied to a leaf that is always asked for, and its answer is dropped.
Others (qr) end it where an output has no cotangent; it gets zeros.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np

from karat.gradients.adapters import Adapter, DrewRandom, FlatFunction, Linearised, copied, gradients_of, graph_nodes
from karat.gradients.adapters.calls import is_float
from karat.gradients.problem import Array, Unsupported

# ruff: noqa: ARG002 - an adapter answers everything it may be asked, if only to refuse

_HELD = "GradNodeAccumulation"  # where a backward leaves a gradient, in an input or a parameter
# The leaf of the backward that is being prepared; none yet where nothing was tied.
_leads: ContextVar[list[Any] | None] = ContextVar("leads", default=None)


_paddle = cache(partial(import_module, "paddle"))


@contextmanager
def tying() -> Iterator[list[Any]]:
    """Within it floating tensors are tied; what is yielded holds the leaf to ask for besides, if there is any.

    Inside another such context the leaf is the same: the gradient's gradient is one backward.
    """
    known = _leads.get()
    if known is not None:
        yield known
        return
    made: list[Any] = []
    token = _leads.set(made)
    try:
        yield made
    finally:
        _leads.reset(token)


def tied(value: Any) -> Any | None:
    """A copy that a backward must compute the gradient of, to no effect; None where no backward is prepared."""
    leads = _leads.get()
    if leads is None:
        return None
    if not leads:
        lead = _paddle().zeros([1], dtype="float64")
        lead.stop_gradient = False
        leads.append(lead)
    return _tie().apply(leads[0], value.detach())


@cache
def _tie() -> Any:
    import paddle

    class Tie(paddle.autograd.PyLayer):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, lead: Any, other: Any) -> Any:
            ctx.save_for_backward(lead)
            return other.clone()

        @staticmethod
        def backward(ctx: Any, _gradient: Any) -> Any:
            (lead,) = ctx.saved_tensor()
            return paddle.zeros_like(lead), None

    return Tie


class PaddleAdapter(Adapter):
    name = "paddle"
    omits = False

    def owns(self, value: object) -> bool:
        kind = getattr(sys.modules.get("paddle"), "Tensor", None)
        return kind is not None and isinstance(value, kind)

    def dtype_of(self, value: Any) -> str:
        return str(value.dtype).rpartition(".")[2]

    def device_of(self, value: Any) -> str:
        place = str(value.place).removeprefix("Place(").removesuffix(")")
        return place.replace("gpu", "cuda")

    def refusal(self, value: Any) -> str:
        return "" if value.is_dense() else "a tensor that is not dense (sparse)"

    def to_numpy(self, value: Any) -> Array:
        name = self.dtype_of(value)
        wide = "complex128" if name.startswith("complex") else "float64"
        plain = value.detach()
        array = (plain if name == wide else plain.astype(wide)).numpy()
        return np.array(array, dtype=wide, order="C")

    def from_numpy(self, array: Array, dtype: str, like: Any | None) -> Any:
        paddle = _paddle()
        if not hasattr(paddle, dtype):
            raise Unsupported(f"paddle {paddle.__version__} has no {dtype}")
        place = None if like is None else like.place
        # paddle.to_tensor may share the memory of the array; a function may write to its input.
        made = paddle.to_tensor(np.array(array, order="C"), place=place)
        return made if self.dtype_of(made) == dtype else made.astype(dtype)

    def cast(self, value: Any, dtype: str) -> Any:
        plain = value.detach()
        return plain.clone() if self.dtype_of(plain) == dtype else plain.astype(dtype)

    def fresh(self, value: Any) -> Any:
        along = tied(value) if is_float(self.dtype_of(value)) else None
        if along is not None:
            return along
        made = value.detach().clone()
        made.stop_gradient = value.stop_gradient
        return made

    def function(self, fn: Callable[..., Any], dtype: str | None) -> Callable[..., Any]:
        is_layer = isinstance(fn, _paddle().nn.Layer)
        return copied(fn, lambda own: own if dtype is None else own.to(dtype=dtype)) if is_layer else fn

    def parameters(self, fn: Callable[..., Any]) -> dict[str, Any]:
        if not isinstance(fn, _paddle().nn.Layer):
            return {}
        return {name: one for name, one in fn.named_parameters() if not one.stop_gradient}

    def call_with(self, fn: Any, held: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        # Paddle has no functional call. A weight that several layers share has one name, and as many places.
        instead = {id(own): held[name] for name, own in fn.named_parameters() if name in held}
        tables = [layer._parameters for layer in fn.sublayers(include_self=True)]  # noqa: SLF001
        before = [dict(one) for one in tables]
        try:
            for table in tables:
                table.update({name: instead.get(id(own), own) for name, own in table.items()})
            return fn(*args, **kwargs)
        finally:
            for table, own in zip(tables, before, strict=True):
                table.update(own)

    @contextmanager
    def scope(self) -> Iterator[None]:
        # The static mode builds programs; given a tensor of the dynamic graph it ends the process.
        paddle = _paddle()
        static = not paddle.in_dynamic_mode()
        if static:
            paddle.disable_static()
        try:
            yield
        finally:
            if static:
                paddle.enable_static()

    @contextmanager
    def seeded(self, seed: int, device: str) -> Iterator[DrewRandom]:
        paddle = _paddle()
        state = paddle.get_rng_state()
        try:
            paddle.seed(seed)
            begun = _states(paddle)
            yield lambda: _states(paddle) != begun
        finally:
            paddle.set_rng_state(state)

    def forward(self, function: FlatFunction, inputs: Sequence[Any]) -> tuple[Any, ...]:
        with _paddle().no_grad():
            return function(inputs)

    def linearise(self, function: FlatFunction, inputs: Sequence[Any], wanted: Sequence[bool]) -> Linearised:
        leaves = [_leaf(one, wants=want) for one, want in zip(inputs, wanted, strict=True)]
        with _paddle().enable_grad(), tying() as leads:
            outputs = function(leaves)
        python = all(name == _HELD or "PyLayer" in name for name in graph_nodes(outputs))
        if not all(wanted) and not python:
            # cross, prelu, solve and more write a gradient that was not asked for to invalid memory.
            raise Unsupported("paddle's own kernels may end the process where an input is frozen")
        asked = [leaf for leaf, want in zip(leaves, wanted, strict=True) if want]

        def pullback(cotangents: Sequence[Any | None]) -> tuple[Any, ...]:
            # Outputs without a graph have no part in it.
            try:
                return _gradients(outputs, [*asked, *leads], cotangents, create_graph=False)[: len(asked)]
            except ValueError as error:
                if "should return None" in str(error):
                    raise Unsupported("paddle asks a PyLayer for no gradient of a frozen input") from error
                raise

        return Linearised(tuple(out.detach() for out in outputs), pullback, tuple(outputs))

    def differentiated(self, function: FlatFunction, takes: int, gives: int) -> FlatFunction:
        paddle = _paddle()

        def gradient(inputs: Sequence[Any]) -> tuple[Any, ...]:
            with paddle.enable_grad(), tying() as leads:
                leaves = [_leaf(one, wants=True) if one.stop_gradient else one for one in inputs]
                outputs = function(leaves[:takes])
                given = [one.astype(out.dtype) for one, out in zip(leaves[takes:], outputs, strict=True)]
                found = _gradients(outputs, [*leaves[:gives], *leads], given, create_graph=True)
            asked = zip(found[:gives], leaves[:gives], strict=True)
            return tuple(paddle.zeros_like(leaf) if one is None else one for one, leaf in asked)

        return gradient

    def accumulate(
        self, function: FlatFunction, inputs: Sequence[Any], cotangents: Sequence[Any], held: Sequence[Any], times: int
    ) -> tuple[Any, ...]:
        paddle = _paddle()
        leaves = [_leaf(one.clone(), wants=True) for one in inputs]
        for leaf, before in zip(leaves, held, strict=True):
            leaf.grad = before.clone()
        for _ in range(times):
            with paddle.enable_grad(), tying() as leads:
                outputs = function(leaves)
            pairs = [(out, one) for out, one in zip(outputs, cotangents, strict=True) if not out.stop_gradient]
            if graph_nodes(outputs).count(_HELD) > len(leaves) + len(leads):
                # There is no way to keep gradients out of them.
                raise Unsupported("the function holds parameters, which would get gradients, too")
            if pairs:
                paddle.autograd.backward([out for out, _ in pairs], [one.clone() for _, one in pairs])
        return tuple(leaf.grad.detach() for leaf in leaves)

    def in_graph(self, value: Any) -> Any:
        return value.clone()

    def strided(self, value: Any) -> Any | None:
        if not value.size or not value.ndim:
            return None
        paddle = _paddle()
        axes = list(reversed(range(value.ndim)))
        try:
            turned = value.detach().transpose(axes).contiguous()
            gapped = paddle.stack([turned, paddle.full_like(turned, 7.0)], axis=-1)[..., 0]
            made = gapped.transpose(axes)
        except Exception:  # noqa: BLE001 - from six axes on paddle's own kernels refuse, each in its own way
            return None
        return None if made.is_contiguous() else made


def _states(paddle: Any) -> list[list[str]]:
    """The generators' states as paddle writes them; without the address among the numbers."""
    return [[word for word in str(one).split() if not word.startswith("0x")] for one in paddle.get_rng_state()]


def _leaf(value: Any, *, wants: bool) -> Any:
    leaf = value.detach()
    leaf.stop_gradient = not wants
    return leaf


def _gradients(
    outputs: Sequence[Any], leaves: Sequence[Any], cotangents: Sequence[Any | None], *, create_graph: bool
) -> tuple[Any, ...]:
    paddle, both = _paddle(), zip(outputs, cotangents, strict=True)
    pairs = [(out, paddle.zeros_like(out) if one is None else one) for out, one in both if not out.stop_gradient]
    found = gradients_of(paddle.grad, pairs, leaves, create_graph=create_graph)
    return tuple(one if one is None or one.is_dense() else _dense(one) for one in found)


def _dense(rows: Any) -> Any:
    """A gradient that names the rows it is for, each as often as it was used, as an ordinary one."""
    paddle, held = _paddle(), rows.get_selected_rows()
    zeros = paddle.zeros([held.height(), *rows.shape[1:]], dtype=rows.dtype)
    return paddle.scatter_nd_add(zeros, paddle.to_tensor(held.rows()).unsqueeze(-1), paddle.to_tensor(rows.numpy()))


ADAPTER = PaddleAdapter()
