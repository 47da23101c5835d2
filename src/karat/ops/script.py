"""Scripts: a fault shown without karat, in at most fifteen lines.

A script follows one element of an input, or all of them at once, by a number t: g(t) is the output, summed with weights.
It prints the derivative of g at 0 as the framework has it, and as differences of g have it: of all steps those three
neighbours that agree best, and that far they are believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from karat.ops.catalogue import Sample
from karat.report.html import asset

_LARGE = 100  # More numbers than this in the inputs, and a script draws them again where it can.
MOST_LINES = 15


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One derivative that is wrong, and how it was asked for."""

    column: str
    sample: str
    input: tuple[int | str, ...] = ()
    """The way to the input: `(0,)`; `(0, 1)` for the second tensor of a list that comes first; empty for all of them."""
    output: tuple[int | str, ...] | None = None  # the way to the output; None for all of them
    modes: tuple[str, ...] = ("reverse",)
    """What is applied, the outermost first: `("forward", "reverse")` is forward mode over reverse mode."""
    dtype: str = "float64"
    law: str = ""
    element: tuple[int, ...] | None = None
    at: str = ""  # the point, if it is one that the check chose itself: `zeros`, `ties`; the sample is there, then
    reason: str
    script: str = ""
    shown: str = ""  # what the script printed; empty if it did not show the fault


TOLERANCES = {"float64": (1e-9, 1e-12), "float32": (1e-3, 1e-4)}
"""How far a derivative may be off, of its own size and of the size of what is summed, beyond the error of the differences;
lower precisions have 0.2 of each."""
_SIZED = ("tiny", "very tiny", "large")  # points where steps have the size of the numbers
_FLOATING = frozenset({"float64", "complex128", "float32"})


@cache
def _dialects() -> dict[str, SimpleNamespace]:
    """How each framework says it."""
    words = msgspec.toml.decode(asset(__package__, "script.toml"), type=dict[str, dict[str, str]])
    return {name: SimpleNamespace(**say) for name, say in words.items()}


def scripts(framework: str, sample: Sample, fault: Fault) -> Iterator[str]:
    """What may show the fault, the plainest first: inputs written out, or drawn again; one element, one input, or all."""
    say = _dialects().get(framework)
    if say is None or ("forward" in fault.modes and not say.forward):
        return
    written, keys = written_out(framework, sample) if sample.source else None, list(pairs(sample))
    known = bool(fault.input) and fault.input[0] in keys  # not a cotangent: that is an input of the gradient's gradient
    moved = "{x} + t * {step}" if not fault.at.startswith(_SIZED) else "{x} + t * {step} * abs({x})"
    moved = f"G({moved})" if fault.law == "non-contiguous" else moved
    for alone in _wanted(sample) if fault.law == "subset" else ():
        yield from scripts(framework, sample, replace(fault, law="", input=(alone,)))
    for setting in filter(None, (written, sample.rebuild)):
        for at in dict.fromkeys((fault.element, None)) if known else ():
            step = say.step.format(at=", ".join(map(str, at))) if at else "W(x)"
            x, number = f"x = inputs{_index(fault.input)}; step = {step}", keys.index(fault.input[0])
            yield _script(say, setting, fault, (x, _one(fault, moved.format(x="x", step="step"))), number)
        if "expected shape" in fault.reason and say.form:
            yield "\n".join([say.start, setting, f"W = lambda y: {say.weights}", *say.form.splitlines(), ""])
        if fault.dtype == "float64":
            yield _script(say, setting, fault, ("", _all(sample, moved.format(x="a", step="W(a)"))), 0)


def _one(fault: Fault, moved: str) -> str:
    """The arguments of the call with one of its inputs moved."""
    if isinstance(fault.input[0], str):
        return f"**{{**inputs, {fault.input[0]!r}: {moved}}}"

    def inside(rest: tuple[int | str, ...], name: str) -> str:
        n = int(rest[0])
        here = moved if len(rest) == 1 else f"[{inside(rest[1:], f'{name}[{n}]')}]"
        return f"{f'*{name}[:{n}], ' if n else ''}{here}, *{name}[{n + 1}:]"

    arguments = inside(fault.input, "inputs")
    return arguments if fault.dtype == "float64" else f"*map(low, [{arguments}])"


def _wanted(sample: Sample) -> tuple[int | str, ...]:
    every = pairs(sample).items()
    floats = tuple(key for key, one in every if str(getattr(one, "dtype", "")).rpartition(".")[2] in _FLOATING)
    return floats if sample.wrt is None else sample.wrt


def _all(sample: Sample, moved: str) -> str:
    """The arguments with all differentiable inputs moved."""
    named = isinstance(sample.inputs, Mapping)
    each = f"{moved} if n in {_wanted(sample)} else a for n, a in {'inputs.items()' if named else 'enumerate(inputs)'}"
    return f"**{{n: {each}}}" if named else f"*[{each}]"


def pairs(sample: Sample) -> Mapping[Any, Any]:
    """Name, or number, → input."""
    return sample.inputs if isinstance(sample.inputs, Mapping) else dict(enumerate(sample.inputs))


def _script(say: SimpleNamespace, setting: str, fault: Fault, moving: tuple[str, str], number: int) -> str:
    x, arguments = moving
    inner = say.reverse if set(fault.modes) == {"reverse"} else say.composed
    # Paddle refuses to record the backward of an operator whose gradient has none: the last one is not recorded.
    modes = {"F": say.forward, "R": inner.replace(", create_graph=True", ""), "S": inner}
    asked = ["F" if mode == "forward" else "S" if n else "R" for n, mode in enumerate(fault.modes)]
    names = [f"{letter} = {modes[letter]}" for letter in sorted(set(asked))]
    if say.start == "import numpy as np":
        # A backward that a person wrote: it is asked for the gradient of the very input.
        names = [names[0].format(number=number), "V = tuple(inputs.values() if isinstance(inputs, dict) else inputs)"]
    low = fault.dtype != "float64"
    if low:
        names.append(f"low = lambda a: {say.cast.format(dtype=fault.dtype)}")
    if fault.law.startswith("non-contiguous"):
        names += [f"P = lambda a: {say.turn}", f"G = lambda a: P({say.stack}([P(a), P(a)], -1)[..., 0])"]
    names.append("D = lambda f, h: lambda t: (8 * (f(t + h) - f(t - h)) - f(t + 2 * h) + f(t - 2 * h)) / (12 * h)")
    g = "lambda t: g(t, low=low)" if low else "g"
    found = f"{'('.join(asked)}({g}{')' * len(asked)}"
    expected = "D(" * len(fault.modes) + "g" + ", h)" * len(fault.modes)
    # The sum has a cotangent that is one number, expanded; behind a transpose it has gaps.
    y = {"expanded-cotangent": "y", "non-contiguous-cotangent": "(P(y) * W(P(y)))"}.get(fault.law, "(y * W(y))")
    if fault.input and str(fault.input[0]).startswith("cotangent("):
        y = "(y * (1 + t) * W(y))"  # whose cotangent depends on t
    sum_of = f"size({say.real.format(y=y)}).sum()"
    if fault.output is None:
        sum_of = f'sum({sum_of} for y in (y if isinstance(y, (list, tuple)) else [y]) if "int" not in str(y.dtype))'
    agree = "(max(abs(a - b), abs(b - c)), b) for a, b, c in zip(tried, tried[1:], tried[2:]) if a - b + c == a - b + c"
    relative, rounding = TOLERANCES.get(fault.dtype, (0.2, 0.2))
    bound = f"20 * off + {relative} * abs(expected) + {rounding} * g(t0, abs).item()"
    lines = [
        say.start,
        *setting.splitlines(),
        f"W = lambda y: {say.weights}",
        "; ".join(filter(None, (x, f"t0 = {say.t}"))),
        f"def g(t, size=lambda a: a{', low=lambda a: a' if low else ''}):",
        f"    y = call({arguments}, **kwargs){_index(fault.output or ())}",
        f"    return {sum_of}",
        "; ".join(names),
        f"found, tried = {found}(t0).item(), [{expected}(t0).item() for h in (0.2 / 2**n for n in range(16))]",
        f"off, expected = min({agree})",
        f'print("right:" if abs(found - expected) <= {bound} else "wrong:", found, "by the framework,", expected, "by differences, +-", off)',
    ]
    return "\n".join(lines) + "\n"


def _index(path: tuple[int | str, ...]) -> str:
    return "".join(f"[{part!r}]" for part in path)


def written_out(framework: str, sample: Sample) -> str | None:
    """Python that binds `call`, `inputs` and `kwargs`; None if a value of them cannot be written, or they are too long."""
    say = _dialects()[framework]
    numbers = 0

    def text(value: Any) -> str:
        nonlocal numbers
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{key!r}: {text(one)}' for key, one in value.items())}}}"
        if isinstance(value, list):
            return f"[{', '.join(map(text, value))}]"
        if type(value) is tuple:
            return f"({''.join(f'{text(one)}, ' for one in value)})"
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            if framework == "torch" and "strided" not in str(value.layout):
                raise ValueError
            array = value.detach().numpy() if hasattr(value, "detach") and framework == "torch" else np.asarray(value)
            numbers += array.size
            form = "" if array.size else f".reshape({list(array.shape)})"
            return str(say.array.format(values=array.tolist(), dtype=array.dtype.name)) + form
        literal = value is None or isinstance(value, bool | int | float | complex | str | slice)
        if literal or repr(value).startswith("torch."):
            return repr(value)
        raise ValueError

    try:
        values = f"inputs, kwargs = {text(sample.inputs)}, {text(sample.kwargs)}"
    except (ValueError, TypeError, RuntimeError):
        return None
    if "nan" in values or "inf" in values:
        values = f"from math import inf, nan; {values}"
    return None if numbers > _LARGE and sample.rebuild else f"{sample.source}\n{values}"
