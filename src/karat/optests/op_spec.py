"""OpSpec: an operator declared once, from which its tests are made.

    SPECS = [
        karat.OpSpec(
            op="softmax",
            fn=torch.softmax,
            samples=lambda dtype, device, rng: [
                OpSample(inputs={"input": rng.standard_normal((3, 5))}, kwargs={"dim": 1}),
            ],
            dtypes=("float64", "float32", "bfloat16"),
            reference=lambda input, dim: np.exp(input) / np.exp(input).sum(dim, keepdims=True),
        ),
    ]
    TestOps = karat.op_tests(SPECS)

What a spec says of its op is a claim, and claims are verified: a second order that is promised and wrong fails, and
so does one that is denied and there.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from karat.findings import UsageError, suggest
from karat.optests import frameworks
from karat.optests.frameworks import framework_of

# Dtype, device and a seeded numpy generator → samples.
Draw = Callable[[str, str, Any], "Iterable[OpSample]"]


class OpSample(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of one call of an op.

    Numpy arrays become tensors of the spec's framework: floats in the dtype that is tested, integers and booleans
    as they are. Tensors are taken as they are.
    """

    inputs: Sequence[Any] | Mapping[str, Any]
    kwargs: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """What is bound: attributes, and tensors that are not differentiated."""
    expected: Any = None  # The expected outputs, if there is no reference.
    name: str = ""  # For test ids; `sample0`, `sample1`, … by default.


class OpSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One operator: its function, samples, precisions, devices, reference and claims."""

    op: str
    fn: Callable[..., Any]
    samples: Draw
    dtypes: tuple[str, ...] = ("float64",)
    devices: tuple[str, ...] = ("cpu",)
    framework: str | None = None  # By default that of `fn`.
    reference: Callable[..., Any] | None = None
    """The same op over float64 numpy arrays, written by somebody else than the op's author."""
    backward: Callable[..., Any] | None = None  # For numpy ops: (inputs, outputs, cotangents) → gradients.
    in_place: Callable[..., Any] | None = None  # The form that writes into its first argument, if there is one.
    order: Literal[1, 2] | None = None  # The highest derivative that is there; 1 = there is no second; None = no claim.
    supports_forward: bool | None = None  # Whether it has a forward mode; None = no claim.
    non_contiguous: bool = True  # Whether tensors with gaps in memory are tried.
    kinks: bool = True
    """Whether samples may lie on kinks, where only one-sided slopes exist; False says that none does."""
    tolerances: Mapping[str, float] = msgspec.field(default_factory=dict)
    """dtype → relative error that is allowed; wider than needed, it is an exemption that needs approval."""
    atol: float = 1e-8  # Of forward values in float64, and never below the dtype's own round-off.
    rtol: float = 1e-7
    names: tuple[str, ...] | None = None
    output_names: tuple[str, ...] | None = None
    wrt: tuple[str, ...] | None = None  # Inputs to check; by default every floating one.
    no_grad: tuple[str, ...] = ()  # Floating inputs that have no gradient; declared, so that it is seen.

    def __post_init__(self) -> None:
        """Refuse a spec that is incomplete or cannot be understood."""
        for what, expected, fine in (
            ("op", "a name", isinstance(self.op, str) and self.op),
            ("fn", "a function", callable(self.fn)),
            ("samples", "a function of dtype, device and rng", callable(self.samples)),
            ("dtypes", "floating-point dtypes", _are_names(self.dtypes)),
            ("devices", "names of devices", _are_names(self.devices)),
            ("no_grad", "names of inputs", self.no_grad == () or _are_names(self.no_grad)),
            ("wrt", "names of inputs", self.wrt is None or _are_names(self.wrt)),
            ("order", "1, 2 or None", self.order in {None, 1, 2}),
        ):
            if not fine:
                raise UsageError(
                    f"OpSpec({self.op!r}): {what}: expected {expected}, found {getattr(self, what)!r}",
                    next_command="karat.OpSpec(op='softmax', fn=…, samples=…, dtypes=('float64',), devices=('cpu',))",
                )
        from karat.gradients.adapters.calls import FLOATS

        odd = [one for one in self.dtypes if one not in FLOATS]
        if odd:
            raise UsageError(
                f"OpSpec({self.op!r}): dtypes: expected floating-point dtypes, "
                f"found {self.dtypes!r}{suggest(odd[0], FLOATS)}",
                next_command="dtypes=('float64', 'float32', 'bfloat16')",
            )
        unknown = set(self.tolerances) - set(self.dtypes)
        if unknown:
            raise UsageError(
                f"OpSpec({self.op!r}): expected tolerances for {', '.join(self.dtypes)}, "
                f"found {', '.join(sorted(unknown))}",
                next_command="name each dtype in dtypes=(…), too",
            )


def _are_names(found: object) -> bool:
    """Whether it is a tuple of names, and not a single one, whose letters would be taken for names."""
    listed = isinstance(found, (tuple, list)) and bool(found)
    return listed and all(isinstance(one, str) and one for one in found)  # type: ignore[attr-defined]


class OpCase(msgspec.Struct, frozen=True, kw_only=True):
    spec: OpSpec
    dtype: str
    device: str
    number: int
    name: str
    seed: int
    absent: str | None = None  # why it cannot be run here
    expects: bool = False  # whether the sample says what must come out

    @property
    def id(self) -> str:
        """`softmax-float64-cpu-sample0`."""
        return f"{self.spec.op}-{self.dtype}-{self.device}-{self.name}"

    @property
    def framework(self) -> str:
        return self.spec.framework or framework_of(self.spec.fn, backward=self.spec.backward)

    def sample(self) -> OpSample:
        """The sample, drawn anew: the same numbers whichever tests run."""
        return _drawn(self.spec, self.dtype, self.device, self.seed)[self.number]


def cases(specs: Sequence[OpSpec], seed: int) -> list[OpCase]:
    """Every case of every spec; names must differ."""
    found = []
    for spec, device in [(one, device) for one in specs for device in one.devices]:
        framework = spec.framework or framework_of(spec.fn, backward=spec.backward)
        absent = frameworks.absence_reason(frameworks.device_name(device, framework), framework)
        for dtype in spec.dtypes:
            case = OpCase(spec=spec, dtype=dtype, device=device, number=0, name="absent", seed=seed, absent=absent)
            if absent is not None:
                found.append(case)
                continue
            for number, sample in enumerate(_drawn(spec, dtype, device, seed)):
                name, expects = sample.name or f"sample{number}", sample.expected is not None
                found.append(msgspec.structs.replace(case, number=number, name=name, expects=expects))
    names = Counter(case.id for case in found)
    twice = sorted(name for name, times in names.items() if times > 1)
    if twice:
        text = f"op_tests: expected names that differ, found {twice[0]!r} twice"
        raise UsageError(text, next_command="give each OpSample a name of its own, and each op one spec")
    return found


_last: list[tuple[OpSpec, str, str, int, list[OpSample]]] = []
"""What was drawn last: tests of one spec run one after the other, and each wants one sample of many."""


def _drawn(spec: OpSpec, dtype: str, device: str, seed: int) -> list[OpSample]:
    for known, *words, samples in _last:
        if known is spec and words == [dtype, device, seed]:
            return samples
    # Not of the dtype: every precision sees the same numbers.
    source = hashlib.sha256(f"{spec.op} {seed}".encode()).digest()[:8]
    given = spec.samples(dtype, device, np.random.default_rng(int.from_bytes(source, "big")))
    samples = list(given) if isinstance(given, Iterable) else [given]
    odd = [one for one in samples if not isinstance(one, OpSample)]
    if not samples or odd:
        raise UsageError(
            f"OpSpec({spec.op!r}): expected samples for {dtype} on {device}, "
            f"found {type(odd[0]).__name__ if odd else 'none'}",
            next_command="let samples(dtype, device, rng) give at least one karat.OpSample",
        )
    _last[:] = [(spec, dtype, device, seed, samples)]
    return samples


def tensors(case: OpCase, like: Any) -> tuple[Sequence[Any] | Mapping[str, Any], dict[str, Any]]:
    """Inputs and kwargs with numpy arrays as tensors, floats in the case's dtype, where `like` lies."""
    sample = case.sample()
    inputs = dict(sample.inputs) if isinstance(sample.inputs, Mapping) else sample.inputs
    return _brought(inputs, case, like), _brought(dict(sample.kwargs), case, like)


def plain(value: Any, case: OpCase) -> Any:
    """The same numbers as float64 numpy arrays, for a reference: as the op sees them, rounded to its dtype."""
    from karat.gradients.adapters import adapter_named

    adapter = adapter_named(case.framework)

    def one(leaf: Any) -> Any:
        if adapter.dtype_of(leaf).startswith(("int", "uint", "bool")):
            from karat.optests.checks import array_of

            return array_of(case.framework, leaf)
        return adapter.to_numpy(leaf)

    return _mapped(value, adapter.owns, one)


def _brought(value: Any, case: OpCase, like: Any) -> Any:
    from karat.gradients.adapters import adapter_named

    adapter = adapter_named(case.framework)

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, (np.ndarray, np.generic)):
            return adapter.fresh(leaf)  # a function may write to it, and another test needs it
        array, dtype = np.asarray(leaf), case.dtype
        if array.dtype.kind == "c" and not dtype.startswith("complex"):
            dtype = "complex128"
        return adapter.from_numpy(array, dtype if array.dtype.kind in "fVc" else str(array.dtype), like)

    return _mapped(value, lambda leaf: adapter.owns(leaf) or isinstance(leaf, (np.ndarray, np.generic)), one)


def _mapped(value: Any, is_leaf: Callable[[object], bool], one: Callable[[Any], Any]) -> Any:
    from karat.gradients.adapters.calls import Leaf, flatten, unflatten

    found: list[Leaf] = []
    form = flatten(value, is_leaf, "", found)
    return unflatten(form, [one(leaf.value) for leaf in found])
