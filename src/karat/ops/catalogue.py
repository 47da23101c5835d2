"""Catalogues: the operators of a framework, each with the samples that its authors, or somebody else, wrote for it.

A catalogue is a function `operators() -> Iterable[Operator]`: karat's own for torch, jax and paddle, one under the entry
point `karat.ops`, or one in a module; a module that has `OpSpec`s needs none.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from karat.findings import CannotVerify, UsageError, suggest
from karat.system.command import Command

if TYPE_CHECKING:
    from karat.optests.op_spec import OpSpec

BUILT_IN = {
    "torch": "karat.ops.torch_ops:operators",
    "jax": "karat.ops.tables:jax",
    "paddle": "karat.ops.tables:paddle",
}


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One call of an operator: `call(*inputs, **kwargs)`, in double precision."""

    call: Callable[..., Any]
    inputs: tuple[Any, ...] | Mapping[str, Any]
    """Arrays and whatever else the call takes; floating arrays, also inside of lists, are differentiated. Or by name."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)  # what is bound, and not differentiated
    description: str = ""  # what is special about it: `an exact zero`, `two equal values`
    source: str = ""
    """Python that binds `call`, without karat: `import jax.numpy as jnp\\ncall = jnp.sinc`, two lines at most.

    The inputs and kwargs of a finding's script are written out by karat. Without a source there is no script, so a fault
    that is found stays unverified.
    """
    rebuild: str = ""
    """Python that binds `call`, `inputs` and `kwargs`, for inputs that are too many numbers to be written out."""
    wrt: tuple[int | str, ...] | None = None
    """Which inputs to differentiate, where not all floating ones are to be: as `gradcheck` takes it."""
    backward: Callable[..., Any] | None = None  # for numpy functions: (inputs, outputs, cotangents) → gradients


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator of a catalogue."""

    name: str  # as a person would look it up: `torch.linalg.det`, `jax.numpy.sinc`; unique in the catalogue.
    framework: str
    samples: Callable[[int], Iterable[Sample]]  # from a seed; called in the process that checks them
    skip: str = ""  # why it is not audited; empty for one that is


Catalogue = Callable[[], Iterable[Operator]]


def load(word: str) -> dict[str, Operator]:
    """The operators of `torch`, `jax`, `paddle`, an entry point or a module, by name; each may be imported only now."""
    found: dict[str, Operator] = {}
    for one in _catalogue(word)():
        if found.setdefault(one.name, one) is not one:
            said = f"{word}: expected operators with names that differ, found {one.name!r} twice"
            raise UsageError(said, next_command="give each Operator a name of its own")
    return found


def _catalogue(word: str) -> Catalogue:
    if word in BUILT_IN:
        built_in: Catalogue = pkgutil.resolve_name(BUILT_IN[word])
        return built_in
    from importlib.metadata import entry_points

    points = {point.name: point for point in entry_points(group="karat.ops")}
    try:
        if word in points:
            named: Catalogue = points[word].load()
            return named
        module = import_module(word)
    except ModuleNotFoundError as error:
        if error.name != word:
            raise _broken(word, error) from error
        known = sorted({*BUILT_IN, *points})
        said = f"expected {', '.join(known)} or a module, found {word!r}: there is no such module{suggest(word, known)}"
        raise UsageError(said, next_command="karat ops --help") from error
    except Exception as error:  # what is imported may fail in any way
        raise _broken(word, error) from error
    own: Catalogue | None = getattr(module, "operators", None)
    return own or (lambda: _declared(module))


def _broken(word: str, error: Exception) -> CannotVerify:
    said = f"expected {word} to load, but {type(error).__name__}: {error}"
    return CannotVerify(said, next_command=Command("python", "-c", f"import {word}"))


def _declared(module: Any) -> Iterator[Operator]:
    """Of the `OpSpec`s that a module has, by themselves or in lists."""
    from karat.optests.frameworks import framework_of
    from karat.optests.op_spec import OpSpec

    values = [one for value in vars(module).values() for one in (value if isinstance(value, list | tuple) else [value])]
    specs = {id(one): one for one in values if isinstance(one, OpSpec)}
    if not specs:
        said = f"{module.__name__}: expected a function operators(), or OpSpecs, found neither"
        raise UsageError(said, next_command="python -c 'import karat; help(karat.OpSpec)'")
    for spec in specs.values():
        framework = spec.framework or framework_of(spec.fn, backward=spec.backward)
        yield Operator(name=spec.op, framework=framework, samples=partial(_drawn, spec))


def _drawn(spec: OpSpec, seed: int) -> Iterator[Sample]:
    from karat.optests.frameworks import device_scope
    from karat.optests.op_spec import cases, tensors

    wanted = {"call": spec.fn, **({"backward": spec.backward} if spec.backward else {})}
    names = {word: getattr(one, "__qualname__", "") for word, one in wanted.items()}
    imports = ", ".join(f"{name} as {word}" for word, name in names.items())
    source = f"from {spec.fn.__module__} import {imports}" if all(map(str.isidentifier, names.values())) else ""
    for case in cases([replace(spec, dtypes=("float64",), devices=("cpu",), tolerances={})], seed):
        with device_scope("cpu", case.framework) as like:
            inputs, kwargs = tensors(case, like)
        yield Sample(
            call=spec.fn,
            inputs=inputs if isinstance(inputs, Mapping) else tuple(inputs),
            kwargs=kwargs,
            description=case.name,
            source=source,
            backward=spec.backward,
        )
