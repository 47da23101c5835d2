"""Names: of a function, of what goes into it and of what comes out."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from karat.findings import UsageError
from karat.gradients.nesting import Leaf


def labels(
    fn: Callable[..., Any],
    args: Sequence[Any],
    named: Mapping[str, Any],
    names: Sequence[str] | None,
) -> tuple[list[str], Sequence[str] | None]:
    """A name per argument; names that are meant for the tensors inside them are given back."""
    count = len(args) + len(named)
    names = [names] if isinstance(names, str) else names
    if names is not None and len(names) == count:
        return [str(name) for name in names], None
    return [*_parameters(fn, len(args)), *named], names


def _parameters(fn: Callable[..., Any], count: int) -> list[str]:
    """The function's own names for its first arguments."""
    owner = _class_applied(fn)
    try:
        parameters = list(inspect.signature(getattr(owner, "forward", fn)).parameters.values())
    except (TypeError, ValueError):
        return [f"x{n}" for n in range(count)]
    found: list[str] = []
    for one in parameters:
        if owner is not None and one.name == "ctx":
            continue
        if one.kind is one.VAR_POSITIONAL:
            found += [f"{one.name}.{n}" for n in range(count - len(found))]
        elif one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}:
            found.append(one.name)
    return found[:count] if len(found) >= count else [f"x{n}" for n in range(count)]


def renamed(leaves: list[Leaf], names: Sequence[str] | None) -> list[Leaf]:
    """The tensors that go in, by the names given; each of its own."""
    if names is None:
        _refuse_twice([leaf.name for leaf in leaves], "names", "input")
        return leaves
    if len(names) != len(leaves):
        raise UsageError(
            f"gradcheck: expected a name for each of {len(leaves)} tensors, found {len(names)} names",
            next_command="names=(…) with as many names as the function has arguments",
        )
    _refuse_twice(names, "names", "input")
    return [Leaf(name, leaf.value) for name, leaf in zip(names, leaves, strict=True)]


def _refuse_twice(names: Sequence[str], argument: str, what: str) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise UsageError(
                f"gradcheck: {argument}: expected names that differ, found {name!r} twice or more",
                next_command=f"{argument}=(…) with a name of its own for every {what}",
            )


def output_names(
    found: Sequence[Leaf], floats: Sequence[int], given: Sequence[str] | None
) -> list[str]:
    """Names of all tensors that come out; `out` if there is one."""
    names = [_output_name(leaf.name) for leaf in found]
    if given is not None and len(given) == len(found):
        names = list(given)
    elif given is not None:
        if len(given) != len(floats):
            raise UsageError(
                f"gradcheck: output_names: expected a name for each of {len(found)} outputs, found {len(given)} names",
                next_command="output_names=(…) with a name per output",
            )
        for n, name in zip(floats, given, strict=True):
            names[n] = name
    _refuse_twice(names, "output_names", "output")
    return names


def _output_name(path: str) -> str:
    """`out`, `out.0`, or the key under which a dict has it."""
    if not path:
        return "out"
    return f"out.{path}" if path[0].isdigit() else path


def name_of(fn: Callable[..., Any]) -> str:
    """What a function is called where nobody said: `tanh` for torch.tanh, `Softmax` for Softmax.apply."""
    inner = getattr(fn, "func", fn)
    owner = _class_applied(inner)
    if owner is not None:
        name = owner.__qualname__
    elif inspect.isfunction(inner) or inspect.ismethod(inner):
        name = inner.__qualname__
    else:
        # The qualified name of what is written in C has a class of the framework's in it, which says nothing.
        name = getattr(inner, "__name__", None) or type(inner).__qualname__
    if str(getattr(inner, "__module__", "")).startswith("paddle."):
        name = name.removeprefix("_")
    return str(name).rpartition("<locals>.")[2]


def goes_by_order(fn: Callable[..., Any], count: int) -> bool:
    """Whether a function takes its first arguments by their order alone: `np.tanh`, `Softmax.apply`, `f(x, /)`."""
    if _class_applied(fn) is not None:
        return True
    try:
        parameters = list(inspect.signature(fn).parameters.values())[:count]
    except (TypeError, ValueError):
        # Ufuncs of older numpys have no signature; what else has none takes names, or says that it does not.
        return hasattr(fn, "nin") and hasattr(fn, "nout")
    return bool(parameters) and all(one.kind is one.POSITIONAL_ONLY for one in parameters)


def _class_applied(fn: Callable[..., Any]) -> type | None:
    """The autograd.Function or PyLayer whose `apply` this is."""
    owner = getattr(fn, "__self__", None)
    named = getattr(fn, "__name__", "") == "apply" and hasattr(owner, "backward")
    return owner if named and isinstance(owner, type) else None
