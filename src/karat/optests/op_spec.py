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

They become a class of ordinary, parametrised pytest items, `test_gradient[softmax-float64-cpu-sample0]`; pytest finds it
by its name, without a plugin. Kinds of tests for which no case was declared are not there at all, so that nothing passes
that compares nothing. What a spec claims of its op is verified: a second order that is promised, and wrong or missing, fails.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import msgspec
import numpy as np

from karat.findings import UsageError, suggest
from karat.gradients import session
from karat.gradients.adapters import adapter_named
from karat.gradients.adapters.calls import FLOATS, Leaf, flatten, takes_positional_only, unflatten
from karat.gradients.adapters.framework_problem import open_problem
from karat.gradients.gradcheck import gradcheck
from karat.gradients.laws import check_properties
from karat.gradients.report import GradComparison, GradReport, GradVerdict
from karat.gradients.session import running_test
from karat.optests import frameworks
from karat.optests.checks import OutputTolerance, array_of, assert_close, gradients_of
from karat.optests.frameworks import framework_of
from karat.optests.op_test import require_evidence

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
    order: Literal[1, 2] = 1  # The highest derivative that is claimed.
    supports_forward: bool = False  # Whether a forward mode is claimed.
    non_contiguous: bool = True  # Whether tensors with gaps in memory are tried.
    tolerances: Mapping[str, float] = msgspec.field(default_factory=dict)
    """dtype → relative error that is allowed; wider than needed, it is an exemption that needs approval."""
    atol: float = 1e-8  # Of forward values in float64, and never below the dtype's own round-off.
    rtol: float = 1e-7
    names: tuple[str, ...] | None = None
    output_names: tuple[str, ...] | None = None
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
            ("order", "1 or 2", self.order in {1, 2}),
        ):
            if not fine:
                raise UsageError(
                    f"OpSpec({self.op!r}): {what}: expected {expected}, found {getattr(self, what)!r}",
                    next_command="karat.OpSpec(op='softmax', fn=…, samples=…, dtypes=('float64',), devices=('cpu',))",
                )
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
    name: str
    seed: int
    sample: OpSample = OpSample(inputs=())
    absent: str | None = None  # why it cannot be run here; then the sample is empty

    @property
    def id(self) -> str:
        """`softmax-float64-cpu-sample0`."""
        return f"{self.spec.op}-{self.dtype}-{self.device}-{self.name}"

    @property
    def framework(self) -> str:
        return self.spec.framework or framework_of(self.spec.fn, backward=self.spec.backward)


def cases(specs: Sequence[OpSpec], seed: int) -> list[OpCase]:
    """Every case of every spec; names must differ."""
    found = []
    for spec, device in [(one, device) for one in specs for device in one.devices]:
        framework = spec.framework or framework_of(spec.fn, backward=spec.backward)
        absent = frameworks.absence_reason(frameworks.device_name(device, framework), framework)
        for dtype in spec.dtypes:
            case = OpCase(spec=spec, dtype=dtype, device=device, name="absent", seed=seed, absent=absent)
            if absent is not None:
                found.append(case)
                continue
            for number, sample in enumerate(_drawn(spec, dtype, device, seed)):
                name = sample.name or f"sample{number}"
                found.append(msgspec.structs.replace(case, name=name, sample=sample))
    names = Counter(case.id for case in found)
    twice = sorted(name for name, times in names.items() if times > 1)
    if twice:
        text = f"op_tests: expected names that differ, found {twice[0]!r} twice"
        raise UsageError(text, next_command="give each OpSample a name of its own, and each op one spec")
    return found


def _drawn(spec: OpSpec, dtype: str, device: str, seed: int) -> list[OpSample]:
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
    return samples


def tensors(case: OpCase, like: Any) -> tuple[Sequence[Any] | Mapping[str, Any], dict[str, Any]]:
    """Inputs and kwargs with numpy arrays as tensors, floats in the case's dtype, where `like` lies."""
    sample = case.sample
    inputs = dict(sample.inputs) if isinstance(sample.inputs, Mapping) else sample.inputs
    return _brought(inputs, case, like), _brought(dict(sample.kwargs), case, like)


def plain(value: Any, case: OpCase) -> Any:
    """The same numbers as float64 numpy arrays, for a reference: as the op sees them, rounded to its dtype."""
    return _mapped(value, adapter_named(case.framework).owns, partial(array_of, case.framework))


def _brought(value: Any, case: OpCase, like: Any) -> Any:
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
    found: list[Leaf] = []
    form = flatten(value, is_leaf, "", found)
    return unflatten(form, [one(leaf.value) for leaf in found])


_UNIT = {"float32": 6e-8, "complex64": 6e-8, "float16": 5e-4, "bfloat16": 4e-3}
_ULPS = 64
_declared_cases: set[tuple[str, str, str]] = set()


class RunningCase(msgspec.Struct, frozen=True, kw_only=True):
    case: OpCase
    inputs: Any
    kwargs: dict[str, Any]

    def words(self) -> dict[str, Any]:
        """The arguments that `gradcheck` and `open_problem` have in common."""
        spec = self.case.spec
        return {
            "op": spec.op,
            "names": spec.names,
            "output_names": spec.output_names,
            "kwargs": self.kwargs,
            "backward": spec.backward,
            "framework": self.case.framework,
        }


@contextmanager
def running(case: OpCase) -> Iterator[RunningCase]:
    """The case, ready; declared as an op test, whatever its outcome."""
    device = frameworks.device_name(case.device, case.framework)
    with frameworks.device_scope(device, case.framework) as like:
        inputs, kwargs = tensors(case, like)
        made = RunningCase(case=case, inputs=inputs, kwargs=kwargs)
        test = _test_class()
        key = (test, case.spec.op, case.dtype)
        if key not in _declared_cases:  # once per file, spec and dtype
            named = {one.name: one.dtype for one in _problem(made, whole=True).inputs}
            _declared_cases.add(key)
            file, no_grad = test.partition("::")[0], case.spec.no_grad
            session.notify(session.Declared(op=case.spec.op, test=test, file=file, inputs=named, no_grad=no_grad))
        yield made


def forward(case: OpCase) -> None:
    """What comes out is what the reference gives, in the case's own precision."""
    __tracebackhide__ = True
    with running(case) as made:
        # First, as the op may write to its inputs.
        expected = _listed(_called(made, case.spec.reference, as_numpy=True))
        found = [array_of(case.framework, one) for one in _listed(_called(made, case.spec.fn))]
        if len(found) != len(expected):
            text = f"{case.id}: expected {len(expected)} outputs, as the reference gives, found {len(found)}"
            raise AssertionError(text)
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            wanted = np.asarray(other)
            floor = _ULPS * _UNIT.get(case.dtype, 0.0)
            scale = float(np.max(np.abs(wanted[np.isfinite(wanted)]), initial=0.0))
            rtol, atol = max(case.spec.rtol, floor), max(case.spec.atol, floor * scale)
            limits = OutputTolerance(rtol=rtol, atol=atol, equal_nan=True)
            assert_close(f"{case.id}: output {number}", one, wanted, limits, like="what the reference gives")


def gradient(case: OpCase) -> None:
    """Every gradient is right: in double precision, and in the case's own."""
    __tracebackhide__ = True
    with running(case) as made:
        report = _gradcheck(made)
        # Probe the gradients without evidence: that an input has none is verified, too.
        proved = {one.input for one in report.comparisons if one.counts}
        whole = _problem(made, whole=True)
        lacking = [one.name for one in whole.inputs if one.name not in proved]
        for name, (outcome, detail) in (gradients_of(lambda: whole, lacking) if lacking else {}).items():
            test = _test_class()
            session.notify(session.NoGrad(op=case.spec.op, input=name, test=test, outcome=outcome, detail=detail))
    require_evidence(report)


def _law(case: OpCase, name: str) -> None:
    import pytest

    __tracebackhide__ = True

    with running(case) as made:
        problem = _problem(made)
        rng = np.random.default_rng(case.seed)
        found = check_properties(problem, rng=rng, which=(name,), in_place=case.spec.in_place)
    failed = [one for one in found if one.verdict is GradVerdict.FAIL]
    if failed:
        raise AssertionError(f"{case.id}: {name}: {'; '.join(one.detail for one in failed)}")
    if not any(one.verdict is GradVerdict.PASS for one in found):
        why = "; ".join(one.detail for one in found) or f"{case.framework} has no such thing"
        pytest.skip(f"{case.id}: nothing was compared: {why}")


def _claim(case: OpCase, what: str, is_of_it: Callable[[GradComparison], bool], **asked: Any) -> None:
    """A claim holds: something of it was compared, and was right; zero everywhere is no evidence either way."""
    __tracebackhide__ = True
    with running(case) as made:
        report = _gradcheck(made, **asked)
    mine = [one for one in report.comparisons if is_of_it(one)]
    if report.verdict is GradVerdict.FAIL:
        report.require()
    if not any(one.verdict.holds for one in mine):
        why = [one.reason for one in mine if one.reason] or report.notes or ("nothing was compared",)
        raise AssertionError(f"{case.id}: {what} is claimed, but missing: {'; '.join(why)}")
    require_evidence(report)


def _gradcheck(made: RunningCase, **more: Any) -> GradReport:
    spec, case = made.case.spec, made.case
    return gradcheck(
        spec.fn,
        made.inputs,
        **made.words(),
        wrt=_wrt(made),
        reference=spec.reference,
        rtol=spec.tolerances.get(case.dtype),
        identity=case.id,
        **more,
    )


def _problem(made: RunningCase, *, whole: bool = False) -> Any:
    """The case as a problem; `whole`: with every input that could have a gradient, whatever the spec says."""
    return open_problem(made.case.spec.fn, made.inputs, **made.words(), wrt=None if whole else _wrt(made))


def _wrt(made: RunningCase) -> tuple[str, ...] | None:
    """The inputs to check: all, less those without a gradient."""
    spec = made.case.spec
    if not spec.no_grad:
        return None
    every = tuple(one.name for one in _problem(made, whole=True).inputs)
    for name in spec.no_grad:
        if name not in every:
            raise UsageError(
                f"OpSpec({spec.op!r}): no_grad: expected floating inputs out of {', '.join(every) or 'none'}, "
                f"found {name!r}{suggest(name, every)}",
                next_command=f"no_grad=({every[0]!r},)" if every else "no_grad=()",
            )
    return tuple(name for name in every if name not in spec.no_grad)


def _test_class() -> str:
    """`file.py::TestOps`, of the item that runs."""
    return (running_test() or "").partition("[")[0].rpartition("::")[0]


def _called(made: RunningCase, function: Any, *, as_numpy: bool = False) -> Any:
    inputs, kwargs = made.inputs, made.kwargs
    if as_numpy:
        inputs, kwargs = plain(inputs, made.case), plain(kwargs, made.case)
    if isinstance(inputs, dict) and not takes_positional_only(function, len(inputs)):
        return function(**inputs, **kwargs)
    return function(*(inputs.values() if isinstance(inputs, dict) else inputs), **kwargs)


def _listed(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [one for item in result for one in _listed(item)]
    return [result]


# The in-place form gives the same bits, and inputs with gaps in memory the same gradients.
in_place, non_contiguous = (partial(_law, name=name) for name in ("in-place", "non-contiguous"))
second_order = partial(_claim, what="second order", is_of_it=lambda one: one.order == 2, order=2)
forward_mode = partial(
    _claim, what="forward mode", is_of_it=lambda one: one.mode == "forward", modes=("reverse", "forward")
)
_ORDINARY = ("float64", "complex128", "float32", "complex64")

KINDS: dict[str, tuple[Callable[[OpCase], bool], Callable[[OpCase], None]]] = {
    "test_forward": (lambda c: c.spec.reference is not None, forward),
    "test_gradient": (lambda c: c.dtype in _ORDINARY, gradient),
    "test_low_precision": (lambda c: c.dtype not in _ORDINARY, gradient),
    "test_second_order": (lambda c: c.spec.order == 2 and c.dtype == c.spec.dtypes[0], second_order),
    "test_forward_mode": (lambda c: c.spec.supports_forward and c.dtype == c.spec.dtypes[0], forward_mode),
    "test_in_place": (lambda c: c.spec.in_place is not None and c.dtype == c.spec.dtypes[0], in_place),
    "test_non_contiguous": (lambda c: c.spec.non_contiguous and c.dtype == c.spec.dtypes[0], non_contiguous),
}
"""Name of a test → the cases it is made for, and what it does."""


def op_tests(specs: OpSpec | Iterable[OpSpec], *, seed: int = 0) -> type:
    """All tests of all specs as one class, for pytest to find under a name that begins with `Test`."""
    specs = (specs,) if isinstance(specs, OpSpec) else tuple(specs)
    odd = [one for one in specs if not isinstance(one, OpSpec)]
    if not specs or odd:
        text = f"op_tests: expected specs, found {type(odd[0]).__name__ if odd else 'none: nothing would be tested'}"
        raise UsageError(text, next_command="TestOps = karat.op_tests([karat.OpSpec(op=…, fn=…, samples=…)])")
    import pytest

    def item_of(check: Callable[[OpCase], None]) -> Callable[[object, OpCase], None]:
        def item(self: object, case: OpCase) -> None:  # noqa: ARG001 - pytest hands over an instance
            __tracebackhide__ = True
            if case.absent is not None:
                pytest.skip(f"{case.spec.op}: nothing was compared: {case.absent}")
            check(case)

        return item

    every = cases(specs, seed)
    body: dict[str, Any] = {"__doc__": f"Tests of {', '.join(spec.op for spec in specs)}."}
    for name, (chosen, check) in KINDS.items():
        mine = [pytest.param(case, id=case.id) for case in every if chosen(case)]
        if mine:
            body[name] = pytest.mark.parametrize("case", mine)(item_of(check))
    return type("TestOps", (), body)
