"""Opened problems: a call of some framework behind the numpy face of `Problem`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from karat.gradients.adapter import Adapter, Flat, Linearised, MalformedGradient
from karat.gradients.calls import Call, of_precision
from karat.gradients.problem import Slot
from karat.gradients.report import Excluded
from karat.gradients.written import Backward, WrittenLinearised

if TYPE_CHECKING:
    from karat.gradients.problem import Array, Arrays


class OpenedProblem:
    """A `Problem` over an adapter; `opening.open_problem` makes them."""

    def __init__(
        self, *, op: str, call: Call, adapter: Adapter, backward: Backward | None = None
    ) -> None:
        self.op = op
        self.call = call
        self.adapter = adapter
        self.framework = adapter.name
        self.device = "cpu"
        self.backward = backward
        self.inputs: tuple[Slot, ...] = ()
        self.outputs: tuple[Slot, ...] = ()
        self.point: tuple[Array, ...] = ()
        self.excluded: tuple[Excluded, ...] = ()
        self.notes: tuple[str, ...] = ()
        self.double = True
        """Whether the function runs in double precision; if not, `dtype=None` runs as given."""
        self.forwards = 0
        self.backwards = 0
        self._likes: tuple[Any, ...] = tuple(call.leaves[index].value for index in call.chosen)
        self._computes: str | None = None
        self._ran: dict[str | None, Linearised] = {}

    @property
    def computes(self) -> str:
        """See `Problem`; found by running, when it is first asked for."""
        if self._computes is None:
            from karat.gradients.precision import computes  # noqa: PLC0415 - it runs problems

            self._computes = computes(self)
        return self._computes

    def forward(self, at: Arrays, *, dtype: str | None = None) -> tuple[Array, ...]:
        """See `Problem`."""
        with self.adapter.scope():
            outputs = self.run(self.natives(at, dtype), dtype)
            return tuple(self.adapter.to_numpy(out) for out in outputs)

    def vjp(
        self, at: Arrays, cotangents: Sequence[Array | None], *, dtype: str | None = None
    ) -> tuple[Array | None, ...]:
        """See `Problem`; a gradient of the wrong shape is a `MalformedGradient`."""
        with self.adapter.scope():
            ran = self._linearised(at, dtype)
            return self.arrays(self.pull(ran, self.native_cotangents(ran, cotangents)))

    def jvp(self, at: Arrays, tangents: Arrays, *, dtype: str | None = None) -> tuple[Array, ...]:
        """See `Problem`."""
        with self.adapter.scope():
            inputs, along = self.natives(at, dtype), self.natives(tangents, dtype)
            found = self.adapter.pushforward(self.flat(dtype), inputs, along)
            self.forwards += 1
            return tuple(self.adapter.to_numpy(one) for one in found)

    def forward_complex(self, at: Arrays) -> tuple[Array, ...]:
        """See `Problem`."""
        # Frameworks warn where a function drops the imaginary part; whoever takes the step looks for that.
        with self.adapter.scope(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            inputs = [
                self.adapter.from_numpy(
                    one, "complex128" if np.iscomplexobj(one) else "float64", like
                )
                for one, like in zip(at, self._likes, strict=True)
            ]
            return tuple(self.adapter.to_numpy(out) for out in self.run(inputs, None))

    def gradient_problem(self, cotangents: Sequence[Array | None]) -> OpenedProblem:
        """The map x ↦ Jᵀv at a fixed v, as a problem of its own; Unsupported where the framework cannot."""
        from karat.gradients.second_order import gradient_problem  # noqa: PLC0415 - it makes problems

        return gradient_problem(self, cotangents)

    def _linearised(self, at: Arrays, dtype: str | None) -> Linearised:
        """The function at a point; at the problem's own point once for all, where nothing can keep state."""
        reused = self.adapter.pure and self.backward is None
        if not reused or any(one is not own for one, own in zip(at, self.point, strict=True)):
            return self.linearise(self.natives(at, dtype), dtype=dtype)
        if dtype not in self._ran:
            self._ran[dtype] = self.linearise(self.natives(at, dtype), dtype=dtype)
        return self._ran[dtype]

    # What follows is the framework's side; `properties` look at it, the mathematics does not.

    def flat(self, dtype: str | None) -> Flat:
        """The function over tensors, in a run of that precision."""
        return self.call.flat(self.precision(dtype))

    def precision(self, dtype: str | None) -> str | None:
        """What bound tensors are cast to: None for as given."""
        if dtype is None:
            return "float64" if self.double else None
        return None if dtype == self.lowest and self.mixed else dtype

    @property
    def mixed(self) -> bool:
        """Whether inputs were given in several precisions."""
        return len({slot.dtype for slot in self.inputs if not slot.complex}) > 1

    @property
    def lowest(self) -> str:
        """The lowest precision that an input was given in; a run of that name is one as given."""
        from karat.gradients.precision import coarseness  # noqa: PLC0415 - it runs problems

        return max((slot.dtype for slot in self.inputs), key=coarseness, default="float64")

    def natives(self, at: Arrays, dtype: str | None) -> list[Any]:
        """Arrays as tensors of the framework, in memory of their own."""
        precision = self.precision(dtype)
        return [
            self.adapter.from_numpy(
                one, slot.dtype if precision is None else of_precision(precision, slot.dtype), like
            )
            for one, slot, like in zip(at, self.inputs, self._likes, strict=True)
        ]

    def run(self, inputs: Sequence[Any], dtype: str | None) -> tuple[Any, ...]:
        """The outputs as tensors."""
        self.forwards += 1
        return self.adapter.forward(self.flat(dtype), inputs)

    def linearise(
        self,
        inputs: Sequence[Any],
        *,
        dtype: str | None = None,
        wanted: Sequence[bool] | None = None,
        flat: Flat | None = None,
    ) -> Linearised:
        """The function at tensors, to be asked for gradients."""
        wanted = [True] * len(inputs) if wanted is None else wanted
        self.forwards += 1
        if self.backward is not None and flat is None:
            return WrittenLinearised(
                self.call, self.backward, inputs, wanted, self.precision(dtype)
            )
        return self.adapter.linearise(flat or self.flat(dtype), inputs, wanted)

    def native_cotangents(
        self, ran: Linearised, cotangents: Sequence[Array | None]
    ) -> list[Any | None]:
        """Cotangents as tensors like the outputs."""
        return [
            None
            if one is None
            else self.adapter.from_numpy(
                _fitting(one, self.adapter.dtype_of(out)), self.adapter.dtype_of(out), out
            )
            for one, out in zip(cotangents, ran.outputs, strict=True)
        ]

    def pull(
        self, ran: Linearised, cotangents: Sequence[Any | None], *, keep: bool = False
    ) -> tuple[Any | None, ...]:
        """Jᵀv as tensors."""
        self.backwards += 1
        return ran.pullback(cotangents, keep=keep)

    def arrays(
        self, gradients: Sequence[Any | None], slots: Sequence[Slot] | None = None
    ) -> tuple[Array | None, ...]:
        """Gradients as arrays of their inputs' shapes."""
        return tuple(
            None if one is None else self._array(one, slot)
            for one, slot in zip(gradients, slots or self.inputs, strict=True)
        )

    def _array(self, gradient: Any, slot: Slot) -> Array:
        if not self.adapter.owns(gradient):
            found = _plain(gradient, slot)
        else:
            found = self.adapter.to_numpy(gradient)
        if found.shape != slot.shape:
            raise MalformedGradient(_of_another_shape(slot, found))
        if np.iscomplexobj(found) and not slot.complex:
            raise MalformedGradient(
                f"gradient of {slot.name}: expected real numbers, as the input has, found complex ones"
            )
        return found


def _plain(gradient: Any, slot: Slot) -> Array:
    """What a written backward gave, if it is numbers."""
    array = np.asarray(gradient)
    if array.dtype.kind not in "fciub":
        raise MalformedGradient(
            f"gradient of {slot.name}: expected an array of numbers, found {type(gradient).__name__}"
        )
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _fitting(array: Array, dtype: str) -> Array:
    """Real for a real output: the imaginary part has no meaning there."""
    return array.real if np.iscomplexobj(array) and not dtype.startswith("complex") else array


def _of_another_shape(slot: Slot, found: Array) -> str:
    text = f"gradient of {slot.name}: expected shape {slot.shape}, found {found.shape}"
    extra = found.ndim - len(slot.shape)
    if extra > 0 and found.shape[extra:] == slot.shape and set(found.shape[:extra]) == {1}:
        return f"{text}; it has an axis of length 1 too many, and wants a reshape"
    if extra > 0 and found.shape[extra:] == slot.shape:
        return f"{text}; the sum over the leading axes, which were broadcast, is missing"
    if extra == 0 and all(
        want in {have, 1} for have, want in zip(found.shape, slot.shape, strict=True)
    ):
        return f"{text}; the sum over the axes of length 1, which were broadcast, is missing"
    if found.shape == slot.shape[::-1]:
        return f"{text}; it is transposed"
    return text
