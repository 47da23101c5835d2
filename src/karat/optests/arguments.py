"""Arguments: inputs and attributes of an op, put to the parameters of the function that stands for it.

Where the framework knows the op's own signature, its order decides, as in the original: the nth input or
attribute of the op is the nth parameter of the function. Where nobody knows it, names decide (without regard
to case and underscores: `transpose_X` is `transposex`), then the order in which the test wrote them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from karat.findings import UsageError

# Parameters that ops do not have: the original leaves them at their defaults, and so does everybody.
PASSED_OVER = frozenset({"name", "dtype", "out", "output"})
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """The order in which an op takes its inputs and attributes, and gives its outputs."""

    inputs: tuple[str, ...]
    attrs: tuple[str, ...]
    outputs: tuple[str, ...]


class FromSlot(msgspec.Struct, frozen=True):
    """An argument that is an input of the op."""

    name: str


class Constant(msgspec.Struct, frozen=True):
    """An argument that is an attribute of the op."""

    value: Any


Argument = FromSlot | Constant


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How the function is to be called."""

    positional: tuple[Argument, ...] = ()
    keyword: Mapping[str, Argument] = msgspec.field(default_factory=dict)

    @property
    def slots(self) -> frozenset[str]:
        """The inputs that reach the function."""
        every = (*self.positional, *self.keyword.values())
        return frozenset(one.name for one in every if isinstance(one, FromSlot))


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What the test wrote: input slots, and attributes that are not None."""

    op: str
    slots: tuple[str, ...]
    attrs: Mapping[str, Any]

    def input(self, name: str) -> Argument | None:
        """The input of that name."""
        return FromSlot(name) if name in self.slots else None

    def either(self, name: str) -> Argument | None:
        """The attribute of that name, or the input that stands for it (`ShapeTensor`)."""
        return Constant(self.attrs[name]) if name in self.attrs else self.input(name)

    def text(self) -> str:
        """Both sides of the test, for messages."""
        return f"inputs {_listed(self.slots)}, attrs {_listed(self.attrs)}"


def plan(function: Callable[..., Any], given: Given, signature: Signature | None) -> Plan:
    """How to call the function with what the test gives."""
    parameters = _parameters(function)
    if parameters is not None and not any(one.kind in _POSITIONAL for one in parameters):
        parameters = None  # `*args` says nothing of names
    if parameters is None:
        order = (*signature.inputs, *signature.attrs) if signature else (*given.slots, *given.attrs)
        found = [given.either(name) for name in order]
        return Plan(positional=tuple(one for one in found if one is not None))
    if signature is not None:
        return _in_order(function, parameters, given, signature)
    return _by_name(function, parameters, given)


def fold(name: str) -> str:
    """A name without case and underscores."""
    return name.replace("_", "").casefold()


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None  # a C function that does not tell


def _in_order(
    function: Callable[..., Any],
    parameters: Sequence[inspect.Parameter],
    given: Given,
    signature: Signature,
) -> Plan:
    """The op's nth is the function's nth; one that the test left out leaves its parameter at the default."""
    queue = [given.input(name) for name in signature.inputs]
    queue += [given.either(name) for name in signature.attrs]
    found: dict[str, Argument | None] = {}
    for parameter in parameters:
        name = parameter.name
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            found[name] = given.either(name)
        elif parameter.kind not in _POSITIONAL:
            continue
        elif name in PASSED_OVER:
            queue = queue[1:]
            found[name] = Constant(given.attrs[name]) if name in given.attrs else None
        elif queue:
            found[name], queue = queue[0], queue[1:]
        else:
            found[name] = given.either(name)
    return _planned(function, parameters, found, given)


def _by_name(
    function: Callable[..., Any], parameters: Sequence[inspect.Parameter], given: Given
) -> Plan:
    names = {fold(name): name for name in (*given.attrs, *given.slots)}
    found: dict[str, Argument | None] = {}
    for parameter in parameters:
        name = names.pop(fold(parameter.name), None)
        found[parameter.name] = given.either(name) if name is not None else None
    # What no name claimed goes where nothing came, in the order of the test: inputs, then attributes.
    left = [name for name in (*given.slots, *given.attrs) if name in names.values()]
    for parameter in parameters:
        free = found[parameter.name] is None and parameter.name not in PASSED_OVER
        if free and left and parameter.kind in _POSITIONAL:
            found[parameter.name] = given.either(left.pop(0))
    extra: dict[str, Argument] = {}
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        extra = {name: Constant(given.attrs[name]) for name in left if name in given.attrs}
        left = [name for name in left if name not in extra]
    if left:
        raise _mismatch(function, parameters, given, f"nothing takes {_listed(left)}")
    made = _planned(function, parameters, found, given)
    return Plan(positional=made.positional, keyword={**made.keyword, **extra})


def _planned(
    function: Callable[..., Any],
    parameters: Sequence[inspect.Parameter],
    found: Mapping[str, Argument | None],
    given: Given,
) -> Plan:
    """Positional until a default stands in between, by name from there on."""
    positional: list[Argument] = []
    keyword: dict[str, Argument] = {}
    gap = False
    for parameter in parameters:
        value = found.get(parameter.name)
        if value is None:
            _has_default(function, parameters, given, parameter)
            gap = gap or parameter.kind in _POSITIONAL
        elif gap or parameter.kind not in _POSITIONAL:
            keyword[parameter.name] = value
        else:
            positional.append(value)
    return Plan(positional=tuple(positional), keyword=keyword)


def _has_default(
    function: Callable[..., Any],
    parameters: Sequence[inspect.Parameter],
    given: Given,
    parameter: inspect.Parameter,
) -> None:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if parameter.default is inspect.Parameter.empty and parameter.kind not in variable:
        raise _mismatch(function, parameters, given, f"nothing is there for {parameter.name!r}")


def _mismatch(
    function: Callable[..., Any],
    parameters: Iterable[inspect.Parameter],
    given: Given,
    what: str,
) -> UsageError:
    name = getattr(function, "__qualname__", repr(function))
    return UsageError(
        f"{given.op}: the test's {given.text()} do not fit python_api "
        f"{name}({', '.join(one.name for one in parameters)}): {what}",
        next_command="set self.python_api to a function whose parameters are the op's inputs and attrs, in order",
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
