"""Tables of operators with samples: the catalogues of jax and Paddle, as text of this package.

A table has a line `= jax.numpy` for a module; then names, and under them, indented, the calls to try, ` | ` between two:

    sum prod
        any(3, 4), axis=1 | any(3, 4), axis=1, where=bools(3, 4) : sum

A call is the arguments as Python writes them; ` : sum` limits it to some of the names. What is drawn, `any(3, 4)`, becomes
an input, and is differentiated if it is floating and not `arr`, `labels` or `fixed`; the first is `x0` in what follows.
`any(...)` stands for a few shapes, which broadcast. What the installed version lacks is listed, with that reason.
"""

from __future__ import annotations

import ast
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module, resources
from typing import Any
from zlib import crc32

import numpy as np

from karat.findings import CannotVerify
from karat.gradients.problem import Array
from karat.ops.catalogue import Operator, Sample
from karat.system.command import Command
from karat.tensors.arrays import jax_x64

_SHAPES: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((3, 4), (3, 4), (3, 4)),
    ((2, 1, 3), (4, 1), (1, 3)),
    ((), (4,), (1,)),
)
"""What `...` stands for: the shapes of the first, second and third draw of a call."""


def _signed(rng: np.random.Generator, low: float, high: float, *shape: int) -> Array:
    return np.asarray(rng.uniform(low, high, shape) * rng.choice([-1.0, 1.0], shape))


def _apart(rng: np.random.Generator, *shape: int) -> Array:
    """No two near each other, none near zero: for what sorts."""
    count = int(np.prod(shape))
    even = np.linspace(-2.0, 2.0, 2 * count)[::2] + 0.4 / max(1, count)
    return rng.permutation(even).reshape(shape)


def _matrix(form: str, rng: np.random.Generator, *shape: int) -> Array:
    made = _signed(rng, 0.1, 1.0, *shape)
    turned, axis = np.swapaxes(made, -1, -2), shape[-1]
    forms = {"spd": made @ turned / axis, "sym": made + turned, "tril": np.tril(made, -1), "reg": made}
    return np.asarray(forms[form] + np.diag(1.5 + np.arange(axis)))


def _labels(rng: np.random.Generator, *shape: int) -> Array:
    """What sums to one, as most losses take for granted."""
    made = rng.dirichlet(np.full(shape[-1], 4.0), shape[:-1]).round(3)
    made[..., -1] += 1.0 - made.sum(-1)
    return made


_DRAWS: Mapping[str, Callable[..., Any]] = {
    "any": lambda rng, *shape: _signed(rng, 0.1, 2.0, *shape),
    "unit": lambda rng, *shape: _signed(rng, 0.05, 0.9, *shape),
    "pos": lambda rng, *shape: rng.uniform(0.2, 3.0, shape),
    "prob": lambda rng, *shape: rng.uniform(0.05, 0.95, shape),
    "big": lambda rng, *shape: rng.uniform(1.2, 4.0, shape),
    "within": lambda rng, low, high, *shape: rng.uniform(low, high, shape),
    "apart": _apart,
    "cplx": lambda rng, *shape: _signed(rng, 0.1, 2.0, *shape) + 1j * _signed(rng, 0.1, 2.0, *shape),
    **{form: partial(_matrix, form) for form in ("spd", "sym", "tril", "reg")},
    "ints": lambda rng, low, high, *shape: rng.integers(low, high, shape),
    "bools": lambda rng, *shape: rng.random(shape) < 0.6,
    "arr": lambda rng, values, dtype=None: np.array(values, dtype),  # noqa: ARG005 - as it is
    "labels": _labels,
    "fixed": lambda rng, *shape: rng.uniform(0.2, 3.0, shape),
}
"""How a table's inputs are drawn: with which numbers the functions are smooth."""
_CONSTANTS = tuple(_DRAWS[name] for name in ("arr", "labels", "fixed"))  # never differentiated


def jax() -> Iterator[Operator]:
    def made(array: Array) -> Any:
        with jax_x64():
            return import_module("jax.numpy").asarray(array)

    return _operators("jax", made)


def paddle() -> Iterator[Operator]:
    return _operators("paddle", lambda array: import_module("paddle").to_tensor(array))


def _operators(framework: str, made: Callable[[Array], Any]) -> Iterator[Operator]:
    try:
        version = import_module(framework).__version__
    except ImportError as error:
        said = f"expected {framework} to load, but {type(error).__name__}: {error}"
        raise CannotVerify(said, next_command=Command("pip", "install", framework)) from error
    for name, calls in read(resources.files("karat.ops").joinpath(f"{framework}.txt").read_text()).items():
        there = _resolved(name)
        samples = partial(_samples, name, tuple(calls), made)
        skip = "" if there is not None else f"{framework} {version} has no {name}"
        yield Operator(name=name, framework=framework, samples=samples, skip=skip)


def read(table: str) -> dict[str, list[str]]:
    """Name → calls, as the table has them."""
    found: dict[str, list[str]] = {}
    module, names, fresh = "", list[str](), True
    for line in table.splitlines():
        if line.startswith("= "):
            module = line[2:].strip()
        elif line.startswith(" "):
            fresh = True
            for call in line.strip().split(" | "):
                arguments, _, limited = call.partition(" : ")
                for name in limited.split() or names:
                    found.setdefault(f"{module}.{name}", []).append(arguments.strip())
        elif line and not line.startswith("#"):
            names = [*([] if fresh else names), *line.split()]
            fresh = False
    return found


def _samples(name: str, calls: tuple[str, ...], made: Callable[[Array], Any], seed: int) -> Iterator[Sample]:
    for text in calls:
        written = ast.parse(f"{name}({text})", mode="eval").body
        draws = [one for one in ast.walk(written) if _drawn_by(one)]
        for shapes in _SHAPES if any(_open(one) for one in draws) else _SHAPES[:1]:
            rng = np.random.default_rng([seed, crc32(f"{name}({text})".encode())])
            call = _Call(written, shapes)
            drawn = [draw(rng) for draw in call.draws]
            # Numbers that a script can have in full.
            inputs = tuple(made(one if one.dtype.kind in "bi" else np.round(one, 3)) for one in drawn)
            given = [k for k, one in enumerate(drawn) if k not in call.constants and one.dtype.kind in "fc"]
            yield Sample(
                call=call,
                inputs=inputs,
                description=call.text.replace(f"{name}(", "(", 1),
                wrt=tuple(given) if call.constants else None,
                source=f"import {name.partition('.')[0]}\ncall = lambda {', '.join(call.names)}: {call.text}",
            )


class _Call(ast.NodeTransformer):
    """A call as a function of what it draws, and as text."""

    def __init__(self, written: ast.expr, shapes: tuple[tuple[int, ...], ...]) -> None:
        self.draws: list[Callable[[np.random.Generator], Any]] = []
        self.names: list[str] = []
        self.constants: list[int] = []
        self._shapes = shapes
        self._call = self.visit(ast.parse(ast.unparse(written), mode="eval").body)
        self.text = ast.unparse(self._call)
        self.__name__ = ast.unparse(self._call.func)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        how = _drawn_by(node)
        if how is None:
            return self.generic_visit(node)
        shape = self._shapes[len(self.draws) % len(self._shapes)]
        given = shape if _open(node) else [_value(one, {}) for one in node.args]
        if how in _CONSTANTS:
            self.constants.append(len(self.draws))
        self.draws.append(lambda rng: np.asarray(how(rng, *given)))
        self.names.append(f"x{len(self.names)}")
        return ast.Name(self.names[-1])

    def __call__(self, *inputs: Any) -> Any:
        return _value(self._call, dict(zip(self.names, inputs, strict=True)))


def _drawn_by(node: ast.AST) -> Callable[..., Any] | None:
    called = node.func if isinstance(node, ast.Call) else None
    return _DRAWS.get(called.id) if isinstance(called, ast.Name) else None


def _open(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and any(isinstance(one, ast.Constant) and one.value is ... for one in node.args)


def _value(node: ast.AST, inputs: Mapping[str, Any]) -> Any:
    """What an expression of a table means: literals, inputs, dotted names, calls; nothing else is Python here."""
    inner = partial(_value, inputs=inputs)
    match node:
        case ast.Name(id="float"):
            return float
        case ast.Name(id=name):
            return inputs[name]
        case ast.Attribute():
            return _resolved(ast.unparse(node))
        case ast.Call(func=func, args=args, keywords=keywords):
            return inner(func)(*map(inner, args), **{str(one.arg): inner(one.value) for one in keywords})
        case ast.List(elts=elts):
            return [inner(one) for one in elts]
        case ast.Tuple(elts=elts):
            return tuple(inner(one) for one in elts)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -inner(operand)
    return ast.literal_eval(node)


def _resolved(name: str) -> Any:
    """What a dotted name names; None where there is nothing of that name."""
    module, _, rest = name.rpartition(".")
    try:
        owner = sys.modules.get(module) or pkgutil.resolve_name(module)
    except (ImportError, AttributeError):
        return None
    return getattr(owner, rest, None)
