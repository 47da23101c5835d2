"""Reach: which gradient checks the tests of a class really come to, through helpers, super() and parents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import msgspec

from karat.policy.scan_expressions import negated
from karat.policy.scan_lineage import Ancestor, Lineage
from karat.policy.scan_names import Class, Function, Names, Outside
from karat.policy.scan_shapes import Call, Decorator, Method, Scope
from karat.policy.scan_vocabulary import (
    EXPECTS_FAILURE,
    FREE_CHECKS,
    HOOKS,
    SKIP_RULE,
    is_check,
    is_test,
)

_DEEPEST = 12
_MOST_SETS = 200
Trail: TypeAlias = tuple[tuple[int | str, str | int], ...]
"""Methods (place in the order, name) and functions (path, scope) that are being followed."""
_NONE: Mapping[str, bool] = {}
_DTYPE = re.compile(
    r"(?P<no>not \()?self\.dtype (?P<sign>==|!=) (?:np\.|paddle\.|')?(?P<dtype>\w+)'?(?(no)\))",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A gradient check that a test comes to."""

    test: str
    call: Call
    path: str
    when: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()
    """Conditions of skip decorators: the runner says that it skipped."""
    caught: bool = False

    @property
    def line(self) -> int:
        """Where the call is."""
        return self.call.line


State = Literal["checked", "conditional", "unchecked", "skipped", "not-run", "abstract"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What the tests of one class come to."""

    state: State
    tests: int
    checks: tuple[Check, ...] = ()
    empty: tuple[tuple[Class, Method], ...] = ()
    """Tests that are named for a check and do nothing, own or inherited."""


class Reach:
    """Follows the tests of classes."""

    def __init__(self, names: Names, lineage: Lineage) -> None:
        self._names = names
        self._lineage = lineage

    def of(
        self, cls: Class, *, collected: bool = True, constants: Mapping[str, bool] = _NONE
    ) -> Reached:
        """Every check that the class's own and inherited tests come to.

        `constants` are parameters of the factory that made the class, whose truth is known.
        """
        order = self._lineage.order(cls)
        tests = dict(self._tests(order))
        # unittest keeps a class's skip as an attribute, which children inherit.
        decorators = [d for a in order if isinstance(a, Class) for d in a.facts.decorators]
        around, expected = conditions(decorators), expects_failure(decorators)
        dtype = self._lineage.dtype(cls)
        checks: list[Check] = []
        for name, (index, method) in tests.items():
            found = (
                settled(c, dtype, constants) for c in self._follow(order, index, method, name, ())
            )
            checks += [
                replace(
                    c,
                    when=cls.facts.when + c.when,
                    visible=around + c.visible,
                    caught=c.caught or expected,
                )
                for c in found
                if c is not None
            ]
        comes = {check.test for check in checks}
        empty = tuple(
            (
                order[i],
                m
                if m.empty
                else msgspec.structs.replace(m, empty="calls only super(), which checks nothing"),
            )
            for name, (i, m) in tests.items()
            if m.empty or (m.only_super and name not in comes)
        )
        return Reached(
            state=_state(cls, decorators, tests, checks, collected=collected), tests=len(tests.keys() - HOOKS), checks=tuple(checks),
            empty=empty,  # type: ignore[arg-type]
        )  # fmt: skip

    def _tests(self, order: Sequence[Ancestor]) -> Iterator[tuple[str, tuple[int, Method]]]:
        """Names that a runner finds, each in the first class that has it."""
        seen: set[str] = set()
        for index, ancestor in enumerate(order):
            if not isinstance(ancestor, Class) or self._lineage.is_root(ancestor):
                continue
            for method in ancestor.facts.methods:
                if method.name not in seen and (is_test(method.name) or method.name in HOOKS):
                    seen.add(method.name)
                    yield method.name, (index, method)
            for name, text in ancestor.facts.attributes.items():
                if name not in seen and is_test(name):
                    seen.add(name)
                    found = self._alias(ancestor, text)
                    if found is not None:
                        yield name, (index, found)

    def _alias(self, cls: Class, text: str) -> Method | None:
        """`test_check_grad = Parent.test_check_grad`; None for what is no method."""
        owner, _, name = text.rpartition(".")
        targets = (
            self._names.resolve(cls.path, cls.facts.scope, owner, environment=cls.environment)
            if owner
            else []
        )
        for target in targets:
            if isinstance(target, Class):
                found = self._find(self._lineage.order(target), name, 0)
                return found[1] if found else None
        if owner:
            return None
        own = next((m for m in cls.facts.methods if m.name == name), None)
        return own or self._function(cls, name)

    def _function(self, cls: Class, name: str) -> Method | None:
        """A function of the module that stands for a method."""
        for target in (
            self._names.resolve(cls.path, cls.facts.scope, name) if name.isidentifier() else ()
        ):
            if isinstance(target, Function):
                scope = self._names.facts(target.path).scopes[target.scope]
                return scope.method or Method(name=scope.name, line=scope.line, does=True)
        return None

    def _find(self, order: Sequence[Ancestor], name: str, start: int) -> tuple[int, Method] | None:
        for index in range(start, len(order)):
            ancestor = order[index]
            if not isinstance(ancestor, Class) or self._lineage.is_root(ancestor):
                continue
            for method in ancestor.facts.methods:
                if method.name == name:
                    return index, method
            if name in ancestor.facts.attributes:
                found = self._alias(ancestor, ancestor.facts.attributes[name])
                return (
                    (index, found)
                    if found
                    else (index, Method(name=name, line=ancestor.facts.line))
                )
        return None

    def _follow(
        self, order: Sequence[Ancestor], index: int, method: Method, test: str,
        trail: Trail,
    ) -> Iterator[Check]:  # fmt: skip
        if (index, method.name) in trail or len(trail) > _DEEPEST or method.empty == "is skipped":
            return
        trail = (*trail, (index, method.name))
        visible, expected = conditions(method.decorators), expects_failure(method.decorators)
        for call in method.calls:
            for check in self._call(order, index, call, test, trail):
                yield replace(check, when=method.when + call.when + check.when, visible=visible + check.visible,
                              caught=call.caught or check.caught or expected)  # fmt: skip

    def _call(
        self, order: Sequence[Ancestor], index: int, call: Call, test: str, trail: Trail
    ) -> Iterator[Check]:  # fmt: skip
        here = order[index]
        assert isinstance(here, Class)  # noqa: S101 - methods are found in classes alone
        made = Check(test=test, call=call, path=here.path)
        if call.receiver in {"self", "super"}:
            found = self._find(order, call.name, index + 1 if call.receiver == "super" else 0)
            if found is not None:
                yield from self._follow(order, *found, test, trail)
            elif is_check(call.name):
                yield made
        elif call.receiver == "class":
            yield from self._by_class(order, here, call, made, trail)
        elif call.name in FREE_CHECKS:
            yield made
        elif call.place:
            for target in self._names.resolve(
                here.path, here.facts.scope, call.owner, environment=here.environment
            ):
                if isinstance(target, Function):
                    yield from self._by_function(order, target, call, test, trail)

    def _by_class(
        self, order: Sequence[Ancestor], here: Class, call: Call, made: Check, trail: Trail
    ) -> Iterator[Check]:  # fmt: skip
        """`Parent.test_check_grad(self)`."""
        for target in self._names.resolve(
            here.path, here.facts.scope, call.owner, environment=here.environment
        ):
            if isinstance(target, Class):
                theirs = self._lineage.order(target)
                found = self._find(theirs, call.name, 0)
                if found is not None:
                    # What it calls on self is looked up from the class that is tested.
                    owner = theirs[found[0]]
                    where, index = (
                        (order, order.index(owner)) if owner in order else (theirs, found[0])
                    )
                    yield from self._follow(where, index, found[1], made.test, trail)
                    continue
            if is_check(call.name) and isinstance(target, Class | Outside):
                yield made

    def _by_function(
        self, order: Sequence[Ancestor], function: Function, call: Call, test: str, trail: Trail
    ) -> Iterator[Check]:
        """A function that is handed the test: `check_all(self)`, `check_all(times=2, test=self)`."""
        scope = self._names.facts(function.path).scopes[function.scope]
        parameter, here = _parameter(scope, call.place), (function.path, function.scope)
        if here in trail or len(trail) > _DEEPEST:
            return
        trail = (*trail, here)
        for inner in scope.method.calls if scope.method is not None else ():
            if inner.object != parameter:
                continue
            for check in self._in_function(order, function, inner, test, trail):
                yield replace(
                    check, when=inner.when + check.when, caught=inner.caught or check.caught
                )

    def _in_function(
        self, order: Sequence[Ancestor], function: Function, call: Call, test: str, trail: Trail
    ) -> Iterator[Check]:
        found = self._find(order, call.name, 0) if call.receiver == "self" else None
        if found is not None:
            yield from self._follow(order, *found, test, trail)
        elif call.receiver == "self" and is_check(call.name):
            yield Check(test=test, call=call, path=function.path)
        elif call.receiver == "free":
            for target in self._names.resolve(function.path, function.scope, call.owner):
                if isinstance(target, Function):
                    yield from self._by_function(order, target, call, test, trail)


def _parameter(scope: Scope, place: str) -> str:
    if not place.isdecimal():
        return place
    return scope.parameters[int(place)] if int(place) < len(scope.parameters) else ""


def always(needs: Iterable[frozenset[str]]) -> bool:
    """Whether one of several sets of conditions holds whatever happens: `c` and `not c` between them do."""
    known = set(needs)
    fresh = list(known)
    while fresh and frozenset() not in known and len(known) < _MOST_SETS:
        each = fresh.pop()
        for condition in each:
            rest = each - {condition}
            if rest | {negated(condition)} in known and rest not in known:
                known.add(rest)
                # What was looked at before may meet its other half in this.
                fresh = list(known)
                break
    return frozenset() in known


def settled(check: Check, dtype: str | None, constants: Mapping[str, bool] = _NONE) -> Check | None:
    """The check without conditions of which it is known that they hold; None where one is never met."""
    if not check.when or (dtype is None and not constants):
        return check
    left = []
    for condition in check.when:
        # A part of what must all hold decides against it; what has an `or` in it stays open.
        whole = " or " in condition or condition.startswith("not (")
        parts = [condition] if whole else condition.split(" and ")
        known = [_known(part, dtype, constants) for part in parts]
        if False in known:
            return None
        if None in known:
            left.append(condition)
    return replace(check, when=tuple(left))


def _known(condition: str, dtype: str | None, constants: Mapping[str, bool]) -> bool | None:
    plain = condition.removeprefix("not ")
    if plain in constants:
        return constants[plain] == (plain == condition)
    match = _DTYPE.fullmatch(condition) if dtype is not None else None
    if match is None:
        return None
    named = {"uint16": "bfloat16", "bool_": "bool"}.get(match["dtype"], match["dtype"])
    return ((named == dtype) == (match["sign"] == "==")) != bool(match["no"])


def expects_failure(decorators: Sequence[Decorator]) -> bool:
    """Whether a failure passes, whatever the condition."""
    return any(d.last in EXPECTS_FAILURE and not d.condition for d in decorators)


def conditions(decorators: Sequence[Decorator]) -> tuple[str, ...]:
    """What skip decorators ask for."""
    return tuple(d.condition for d in decorators if d.condition)


def _state(
    cls: Class, inherited: Sequence[Decorator], tests: dict[str, tuple[int, Method]], checks: list[Check], *,
    collected: bool,
) -> State:  # fmt: skip
    facts = cls.facts
    if not (tests.keys() - HOOKS) or not collected or facts.attributes.get("__test__") == "False":
        return "abstract"
    if any(d.last == "skip" for d in inherited):
        return "not-run"
    good = [check for check in checks if not check.caught]
    if any(d.last == SKIP_RULE for d in facts.decorators) and not good:
        return "skipped"
    if not good:
        return "unchecked"
    return "checked" if always(frozenset(c.when + c.visible) for c in good) else "conditional"
