"""OpSpec: an operator declared once, from which its tests are made.

    SPECS = [
        karat.OpSpec(
            op="softmax",
            fn=torch.softmax,
            samples=lambda dtype, device, rng: [
                Sample(inputs={"input": rng.standard_normal((3, 5))}, kwargs={"dim": 1}),
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

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from karat.findings import UsageError, suggest

Draw = Callable[[str, str, Any], "Iterable[Sample]"]
"""dtype, device and a seeded numpy generator → samples."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of one call of an op.

    Numpy arrays become tensors of the spec's framework: floats in the dtype that is tested, integers and booleans
    as they are. Tensors are taken as they are.
    """

    inputs: Sequence[Any] | Mapping[str, Any]
    kwargs: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """What is bound: attributes, and tensors that nobody differentiates by."""
    expected: Any = None
    """What must come out, if there is no reference."""
    name: str = ""
    """For test ids; `sample0`, `sample1`, … by default."""


class OpSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One operator: its function, samples, precisions, devices, reference and claims."""

    op: str
    fn: Callable[..., Any]
    samples: Draw
    dtypes: tuple[str, ...] = ("float64",)
    devices: tuple[str, ...] = ("cpu",)
    framework: str | None = None
    """By default that of `fn`."""
    reference: Callable[..., Any] | None = None
    """The same op over float64 numpy arrays, written by somebody else than the op's author."""
    backward: Callable[..., Any] | None = None
    """For numpy ops: (inputs, outputs, cotangents) → gradients."""
    in_place: Callable[..., Any] | None = None
    """The form that writes into its first argument, if there is one."""
    order: Literal[1, 2] | None = None
    """The highest derivative that is there; 1 says that there is no second; None says nothing of it."""
    supports_forward: bool | None = None
    """Whether it has a forward mode; None says nothing of it."""
    non_contiguous: bool = True
    """Whether tensors with gaps in memory are tried."""
    kinks: bool = True
    """Whether samples may lie on kinks, where only one-sided slopes exist; False says that none does."""
    tolerances: Mapping[str, float] = msgspec.field(default_factory=dict)
    """dtype → relative error that is allowed; wider than needed, it is an exemption that needs approval."""
    atol: float = 1e-8
    """Of forward values in float64, and never below the dtype's own round-off."""
    rtol: float = 1e-7
    names: tuple[str, ...] | None = None
    output_names: tuple[str, ...] | None = None
    wrt: tuple[str, ...] | None = None
    """Inputs to check; by default every floating one."""
    no_grad: tuple[str, ...] = ()
    """Floating inputs that have no gradient; declared, so that it is seen."""

    def __post_init__(self) -> None:
        """A spec that says nothing, or what nobody understands, is refused where it is written."""
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
        _refuse_unknown(self.op, self.dtypes)
        unknown = set(self.tolerances) - set(self.dtypes)
        if unknown:
            raise UsageError(
                f"OpSpec({self.op!r}): expected tolerances for {', '.join(self.dtypes)}, "
                f"found {', '.join(sorted(unknown))}",
                next_command="name each dtype in dtypes=(…), too",
            )


def _refuse_unknown(op: str, dtypes: Sequence[str]) -> None:
    """Raise for a dtype that has no gradients, or that nobody knows."""
    from karat.gradients.calls import FLOATS  # noqa: PLC0415 - as the adapters

    odd = [one for one in dtypes if one not in FLOATS]
    if odd:
        raise UsageError(
            f"OpSpec({op!r}): dtypes: expected floating-point dtypes, found {dtypes!r}{suggest(odd[0], FLOATS)}",
            next_command="dtypes=('float64', 'float32', 'bfloat16')",
        )


def _are_names(found: object) -> bool:
    """Whether it is a tuple of names, and not a single one, whose letters would be taken for names."""
    listed = isinstance(found, (tuple, list)) and bool(found)
    return listed and all(isinstance(one, str) and one for one in found)  # type: ignore[attr-defined]


def op_tests(specs: Iterable[OpSpec], *, seed: int = 0) -> type:
    """All tests of all specs as one class, for pytest to find under a name that begins with `Test`."""
    from karat.optests.generating import op_tests as made  # noqa: PLC0415 - brings pytest

    listed = (specs,) if isinstance(specs, OpSpec) else tuple(specs)
    return made(listed, seed=seed)
