"""Adapters: how a framework's tensors and derivatives are seen by the checker.

An adapter works on the framework's own tensors and knows nothing of checking. Third parties register theirs under
the entry point `karat.adapters`: a name, and an object that is an `Adapter`. The built-in ones register the same
way, and are found without a look at entry points.

A function is seen flat: a sequence of tensors goes in, the differentiable ones alone; a tuple of tensors comes out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from karat.findings import suggest
from karat.gradients.problem import Array, Unsupported, misuse

# A function over the differentiable tensors alone.
FlatFunction = Callable[[Sequence[Any]], tuple[Any, ...]]

DrewRandom = Callable[[], bool]  # whether a random number was drawn since

# ruff: noqa: ARG002 - defaults of an adapter use little of what they are given

# numpy last: its arrays stand among the arguments of every framework's functions.
BUILT_IN = ("torch", "jax", "paddle", "numpy")


@dataclass(frozen=True, slots=True)
class Linearised:
    """A function that was run once at a point, ready to be asked for Jᵀv, as often as wanted."""

    outputs: tuple[Any, ...]  # what the function gave, out of the graph
    pullback: Callable[[Sequence[Any | None]], tuple[Any, ...]]  # a gradient per input that was wanted, or None
    graph: tuple[Any, ...] = ()  # the outputs in the graph; one without `grad_fn` is declared to have no gradient


class Adapter(Protocol):
    """One framework. Names of dtypes are karat's (`karat.tensors.dtypes`). What has a body may be left out by a subclass."""

    name: str  # the framework, as it is imported
    pure: bool = False  # whether a run at the same point may be used again: no function of the framework can keep state
    omits: bool = True  # whether a backward may go without the cotangent of an output; else it is given zeros

    def owns(self, value: object) -> bool:
        """Whether it is a tensor of this framework; the framework is not imported to say no."""

    def dtype_of(self, value: Any) -> str:
        """The element type."""

    def device_of(self, value: Any) -> str:
        """Where it lies: `cpu`, `cuda:0`."""

    def shape_of(self, value: Any) -> tuple[int, ...]:
        return tuple(value.shape)

    def refusal(self, value: Any) -> str:
        """What it is, if it cannot be an input to step from: not dense, without numbers; else nothing."""
        return ""

    def stored(self, value: Any) -> tuple[Any, Callable[[Any], Any]] | None:
        """The values that a sparse tensor stores, and how to make one like it of others; None for any other."""
        return None

    def dense(self, value: Any) -> Any:
        return value

    def autocast(self, dtype: str, device: str) -> AbstractContextManager[object]:
        """Within it operations choose their own precision, that one or float32; or Unsupported."""
        raise Unsupported(f"{self.name} has no autocast")

    def to_numpy(self, value: Any) -> Array:
        """Its numbers, widened exactly to float64 or complex128, in memory of their own."""

    def glance(self, value: Any) -> Array:
        """The same, to be used before the function runs again: maybe in the tensor's own memory."""
        return self.to_numpy(value)

    def from_numpy(self, array: Array, dtype: str, like: Any | None) -> Any:
        """A new tensor with these numbers, where `like` lies; Unsupported if there is no such dtype."""

    def lent(self, array: Array) -> Any:
        """A tensor of float64 on the host with these numbers, maybe in the array's own memory."""
        return self.from_numpy(array, "float64", None)

    def cast(self, value: Any, dtype: str) -> Any:
        """A new tensor of that dtype, in the same place, outside of any graph."""

    def fresh(self, value: Any) -> Any:
        """One that a function may write to without harm to `value`; the same if none can."""
        return value

    def function(self, fn: Callable[..., Any], dtype: str | None) -> Callable[..., Any]:
        """The function in a run of that precision: a module is copied and cast, so that its own stays as it is."""
        return fn

    def parameters(self, fn: Callable[..., Any]) -> dict[str, Any]:
        """The tensors that a module holds and learns, by name."""
        return {}

    def call_with(self, fn: Any, held: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What a module returns with these parameters in the place of its own, which stay as they are."""
        raise Unsupported(f"{self.name} has no modules")

    def scope(self) -> AbstractContextManager[object]:
        """Within it double precision is there, and whatever it changes is as before afterwards."""
        return nullcontext()

    def seeded(self, seed: int, device: str) -> AbstractContextManager[DrewRandom]:
        """Within it random numbers start from the seed; afterwards they go on as if nothing had been."""
        return nullcontext(lambda: False)

    def jittered(self, size: float, seed: int) -> AbstractContextManager[object]:
        """Within it what a forward saves for its backward is moved by up to that share of itself, where that can be done."""
        return nullcontext()

    def forward(self, function: FlatFunction, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs, without a graph."""
        return function(inputs)

    def linearise(self, function: FlatFunction, inputs: Sequence[Any], wanted: Sequence[bool]) -> Linearised:
        """The function at a point; the inputs are used as they are, with their strides."""

    def pushforward(self, function: FlatFunction, inputs: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
        """J·u by forward mode; Unsupported where there is none."""
        raise Unsupported(f"{self.name} has no forward mode")

    def differentiated(self, function: FlatFunction, takes: int, gives: int) -> FlatFunction:
        """The map (x, v) ↦ Jᵀv, which can itself be differentiated; Unsupported where that cannot be.

        The function takes so many of the tensors, a cotangent for each output follows; gradients of so many come back.
        """

    def pushed(self, function: FlatFunction) -> FlatFunction:
        """The map (x, u) ↦ J·u, which can itself be differentiated in both modes; or Unsupported."""
        raise Unsupported(f"{self.name} has no forward mode")

    def accumulate(
        self, function: FlatFunction, inputs: Sequence[Any], cotangents: Sequence[Any], held: Sequence[Any], times: int
    ) -> tuple[Any, ...]:
        """What lies in the inputs' gradients after so many backwards, when `held` lay there before; or Unsupported."""
        raise Unsupported(f"{self.name} arrays hold no gradients")

    def batched(
        self, function: FlatFunction, points: Sequence[Sequence[Any]], cotangents: Sequence[Sequence[Any]]
    ) -> tuple[list[tuple[Any, ...]], bool]:
        """Gradients for each point and its cotangents, all at once; or, if False, at the first point for all cotangents."""
        raise Unsupported(f"{self.name} has no batches of gradients")

    def op_faults(self, function: FlatFunction, inputs: Sequence[Any]) -> list[str] | None:
        """What the framework finds wrong with custom ops that the function calls; None where it calls none."""
        return None

    def in_graph(self, value: Any) -> Any:
        """A copy that gradients flow through, for functions that write to their input; or Unsupported."""

    def strided(self, value: Any) -> Any | None:
        """The same numbers, axes in reverse order in memory and gaps between; None where the framework has none."""
        return None

    def expanded(self, value: Any) -> Any | None:
        """The first number of it, in its shape, without memory for each; None where the framework has none."""
        return None


def copied(module: Any, cast: Callable[[Any], Any]) -> Callable[..., Any]:
    """A copy of a module in another precision; what cannot be copied or cast is used as it is."""
    own: Callable[..., Any] = module
    with suppress(Exception):
        own = copy.deepcopy(module)
        own = cast(own)
    return own


def gradients_of(
    grad: Callable[..., Any], pairs: Sequence[tuple[Any, Any]], leaves: Sequence[Any], *, create_graph: bool
) -> tuple[Any, ...]:
    """Gradients of leaves by torch's or paddle's `grad`, for pairs of an output in the graph and its cotangent."""
    if not pairs or not leaves:
        return (None,) * len(leaves)
    outputs, cotangents = (list(side) for side in zip(*pairs, strict=True))
    options = {"retain_graph": create_graph, "create_graph": create_graph, "allow_unused": True}
    return tuple(grad(outputs, list(leaves), cotangents, **options))


def graph_nodes(tensors: Iterable[Any]) -> list[str]:
    """What a backward from these tensors runs through, by name."""
    left = [one.grad_fn for one in tensors if one is not None and one.grad_fn is not None]
    seen = set()
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            # torch has pairs of a node and a number, paddle the nodes.
            after = (one[0] if isinstance(one, tuple) else one for one in node.next_functions)
            left += [one for one in after if one is not None]
    return [node.name() for node in seen]


def adapter_of(values: Iterable[object], framework: str | None = None) -> Adapter:
    """The adapter for these values: the one that is named, or else the first that owns one of them."""
    if framework is not None:
        return adapter_named(framework)
    leaves = list(values)
    # Entry points are looked at only for tensors that no built-in adapter owns.
    for names in (lambda: BUILT_IN, _third_parties):
        for name in names():
            adapter = adapter_named(name)
            if any(adapter.owns(leaf) for leaf in leaves):
                return adapter
    found = ", ".join(sorted({type(leaf).__name__ for leaf in leaves})) or "none"
    said = f"expected a tensor of {', '.join(BUILT_IN)} among the inputs, found {found}"
    raise misuse(said, "pass tensors, or say framework='torch' for numpy arrays that are to become tensors")


def adapter_named(framework: str) -> Adapter:
    found: Adapter
    if framework in BUILT_IN:
        # The adapter's own module; the framework was imported by the maker of the tensors.
        found = import_module(f"karat.gradients.adapters.{framework}").ADAPTER
        return found
    points = _third_parties()
    if framework not in points:
        known = [*BUILT_IN, *points]
        said = f"expected a framework out of {', '.join(known)}, found {framework!r}{suggest(framework, known)}"
        raise misuse(said, "pip install the package that has its adapter (entry point karat.adapters)")
    found = points[framework].load()
    return found


def _third_parties() -> dict[str, Any]:
    from importlib.metadata import entry_points

    points = sorted(entry_points(group="karat.adapters"), key=lambda point: point.name)
    return {point.name: point for point in points if point.name not in BUILT_IN}
