"""Cases of specs: one spec, dtype, device and sample each, with the name that a test id shows."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from karat.findings import UsageError
from karat.optests import places
from karat.optests.frameworks import framework_of
from karat.optests.op_spec import OpSpec, Sample

Array = np.ndarray[Any, np.dtype[Any]]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to be tested."""

    spec: OpSpec
    dtype: str
    device: str
    number: int
    name: str
    seed: int
    absent: str | None = None
    """Why it cannot be run here."""
    expects: bool = False
    """Whether the sample says what must come out."""

    @property
    def id(self) -> str:
        """`softmax-float64-cpu-sample0`."""
        return f"{self.spec.op}-{self.dtype}-{self.device}-{self.name}"

    @property
    def framework(self) -> str:
        """The framework of the op."""
        return framework(self.spec)

    def sample(self) -> Sample:
        """The sample, drawn anew: the same numbers whichever tests run."""
        return _drawn(self.spec, self.dtype, self.device, self.seed)[self.number]


def framework(spec: OpSpec) -> str:
    """The framework of a spec's function."""
    return spec.framework or framework_of(spec.fn, backward=spec.backward)


def cases(specs: Sequence[OpSpec], seed: int) -> list[Case]:
    """Every case of every spec; names must differ."""
    found = [case for spec in specs for case in _of_spec(spec, seed)]
    names = Counter(case.id for case in found)
    twice = sorted(name for name, times in names.items() if times > 1)
    if twice:
        raise UsageError(
            f"op_tests: expected names that differ, found {twice[0]!r} twice",
            next_command="give each Sample a name of its own, and each op one spec",
        )
    return found


def _of_spec(spec: OpSpec, seed: int) -> Iterator[Case]:
    for device in spec.devices:
        absent = places.why_absent(places.device_name(device, framework(spec)), framework(spec))
        for dtype in spec.dtypes:
            if absent is not None:
                yield Case(
                    spec=spec, dtype=dtype, device=device, number=0, name="absent", seed=seed, absent=absent
                )  # fmt: skip
                continue
            drawn = _drawn(spec, dtype, device, seed)
            for number, sample in enumerate(drawn):
                name = sample.name or f"sample{number}"
                yield Case(
                    spec=spec, dtype=dtype, device=device, number=number, name=name, seed=seed,
                    expects=sample.expected is not None,
                )  # fmt: skip


_last: list[tuple[OpSpec, str, str, int, list[Sample]]] = []
"""What was drawn last: tests of one spec run one after the other, and each wants one sample of many."""


def _drawn(spec: OpSpec, dtype: str, device: str, seed: int) -> list[Sample]:
    for known, *words, samples in _last:
        if known is spec and words == [dtype, device, seed]:
            return samples
    _last[:] = [(spec, dtype, device, seed, _draw(spec, dtype, device, seed))]
    return _last[0][-1]


def _draw(spec: OpSpec, dtype: str, device: str, seed: int) -> list[Sample]:
    # Not of the dtype: every precision sees the same numbers.
    words = f"{spec.op} {seed}".encode()
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(words).digest()[:8], "big"))
    given = spec.samples(dtype, device, rng)
    samples = list(given) if isinstance(given, Iterable) else [given]
    odd = [one for one in samples if not isinstance(one, Sample)]
    if not samples or odd:
        raise UsageError(
            f"OpSpec({spec.op!r}): expected samples for {dtype} on {device}, "
            f"found {type(odd[0]).__name__ if odd else 'none'}",
            next_command="let samples(dtype, device, rng) give at least one karat.Sample",
        )
    return samples


def tensors(case: Case, like: Any) -> tuple[Sequence[Any] | Mapping[str, Any], dict[str, Any]]:
    """Inputs and kwargs with numpy arrays as tensors, floats in the case's dtype, where `like` lies."""
    sample = case.sample()
    inputs = dict(sample.inputs) if isinstance(sample.inputs, Mapping) else sample.inputs
    return _brought(inputs, case, like), _brought(dict(sample.kwargs), case, like)


def plain(value: Any, case: Case) -> Any:
    """The same numbers as float64 numpy arrays, for a reference: as the op sees them, rounded to its dtype."""
    from karat.gradients.adapter import named  # noqa: PLC0415 - only for references

    adapter = named(case.framework)

    def one(leaf: Any) -> Any:
        if adapter.dtype_of(leaf).startswith(("int", "uint", "bool")):
            from karat.optests.outputs import array_of  # noqa: PLC0415

            return array_of(case.framework, leaf)
        return adapter.to_numpy(leaf)

    return _mapped(value, adapter.owns, one)


def _brought(value: Any, case: Case, like: Any) -> Any:
    from karat.gradients.adapter import named  # noqa: PLC0415

    adapter = named(case.framework)

    def is_one(leaf: object) -> bool:
        return adapter.owns(leaf) or isinstance(leaf, (np.ndarray, np.generic))

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, (np.ndarray, np.generic)):
            return adapter.fresh(leaf)  # a function may write to it, and another test needs it
        array = np.asarray(leaf)
        return adapter.from_numpy(array, _dtype(array, case.dtype), like)

    return _mapped(value, is_one, one)


def _dtype(array: Array, wanted: str) -> str:
    if array.dtype.kind == "c":
        return wanted if wanted.startswith("complex") else "complex128"
    return wanted if array.dtype.kind in "fV" else str(array.dtype)


def _mapped(value: Any, is_leaf: Callable[[object], bool], one: Callable[[Any], Any]) -> Any:
    from karat.gradients.nesting import Leaf, filled, taken  # noqa: PLC0415 - as the adapters

    found: list[Leaf] = []
    form = taken(value, is_leaf, "", found)
    return filled(form, [one(leaf.value) for leaf in found])
