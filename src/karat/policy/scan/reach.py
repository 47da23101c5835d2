"""Which gradient checks the tests of a class really reach, through helpers, super() and parents, and under which conditions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import msgspec

from karat.policy.scan.facts import Decorator, Method, MethodCall
from karat.policy.scan.names import Ancestor, Class, Function, Lineage, Memo, Names, Outside, Place
from karat.policy.scan.source import negated, truth
from karat.policy.scan.vocabulary import EXPECTS_FAILURE, FREE_CHECKS, HOOKS, SKIP_RULE, is_check, is_test

_MOST_SETS = 200


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


def settled(when: tuple[str, ...], known: Mapping[str, object]) -> tuple[str, ...] | None:
    """The conditions without those that are known to hold; None where one is never met."""
    truths = {condition: truth(_parsed(condition), known) for condition in when}
    return None if False in truths.values() else tuple(one for one in when if truths[one] is None)


@cache
def _parsed(condition: str) -> ast.expr | None:
    try:
        return ast.parse(condition, mode="eval").body
    except SyntaxError:  # shortened, or in words
        return None


def expects_failure(decorators: Sequence[Decorator]) -> bool:
    """Whether a failure passes, whatever the condition."""
    return any(d.last in EXPECTS_FAILURE and not d.condition for d in decorators)


def conditions(decorators: Sequence[Decorator]) -> tuple[str, ...]:
    """What skip decorators ask for."""
    return tuple(d.condition for d in decorators if d.condition)


_DEEPEST = 40  # Helpers that call helpers; the interpreter's own stack ends not far beyond.
_MOST_CHECKS = 100  # Checks of one method that are told apart.
_NONE: Mapping[str, bool] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A gradient check that a test reaches."""

    test: str
    call: MethodCall
    path: str
    when: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()  # Conditions of skip decorators: the runner says that it skipped.
    caught: bool = False


State = Literal["checked", "conditional", "unchecked", "skipped", "not-run", "abstract"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What the tests of one class reach."""

    state: State
    tests: int
    checks: tuple[Check, ...] = ()
    empty: tuple[tuple[Class, Method], ...] = ()  # Tests that are named for a check and do nothing, own or inherited.


class Reach:
    """Follows the tests of classes."""

    def __init__(self, names: Names, lineage: Lineage) -> None:
        self._names = names
        self._lineage = lineage
        self._test = ""  # The test that is followed now.
        self._memo: Memo[list[Check]] = Memo(_DEEPEST, [])
        """What the methods on its way reach, each worked out once however many ways lead there."""

    def of(self, cls: Class, *, collected: bool = True, constants: Mapping[str, bool] = _NONE) -> Reached:
        """Every check that the class's own and inherited tests reach.

        `constants` are parameters of the factory that made the class, whose truth is known.
        """
        order = self._lineage.order(cls)
        tests = dict(self._tests(order))
        # unittest keeps a class's skip as an attribute, which children inherit.
        decorators = [d for a in order if isinstance(a, Class) for d in a.facts.decorators]
        around, expected = conditions(decorators), expects_failure(decorators)
        checks: list[Check] = []
        for name, (index, method) in tests.items():
            self._test, self._memo = name, Memo(_DEEPEST, [])
            for check in self._follow(order, index, method):
                when = settled(check.when, {**self._lineage.values(cls), **constants}) if check.when else ()
                if when is not None:
                    when, visible = cls.facts.when + when, around + check.visible
                    checks.append(replace(check, when=when, visible=visible, caught=check.caught or expected))
        good = [check for check in checks if not check.caught]
        runs = collected and tests.keys() - HOOKS and cls.facts.attributes.get("__test__") != "False"
        state: State
        if not runs:
            state = "abstract"
        elif any(d.last == "skip" for d in decorators):
            state = "not-run"
        elif not good:
            state = "skipped" if any(d.last == SKIP_RULE for d in cls.facts.decorators) else "unchecked"
        else:
            state = "checked" if always(frozenset(c.when + c.visible) for c in good) else "conditional"
        comes = {check.test for check in checks}
        empty = tuple(
            (order[i], m if m.empty else msgspec.structs.replace(m, empty="calls only super(), which checks nothing"))
            for name, (i, m) in tests.items()
            if m.empty or (m.only_super and name not in comes)
        )
        return Reached(
            state=state,
            tests=len(tests.keys() - HOOKS),
            checks=tuple(checks),
            empty=empty,  # type: ignore[arg-type]
        )

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
        """`test_check_grad = Parent.test_check_grad`, or a function of the module; None for what is no method."""
        owner, _, name = text.rpartition(".")
        if not owner:
            own = next((m for m in cls.facts.methods if m.name == name), None)
            if own is not None or not name.isidentifier():
                return own
        place = Place(cls.path, cls.facts.scope, environment=cls.environment)
        for target in self._names.resolve(place, owner or name):
            if owner and isinstance(target, Class):
                found = self._find(self._lineage.order(target), name)
                return found[1] if found else None
            if not owner and isinstance(target, Function):
                scope = self._names.facts(target.path).scopes[target.scope]
                return scope.method or Method(name=scope.name, line=scope.line, does=True)
        return None

    def _find(self, order: Sequence[Ancestor], name: str, start: int = 0) -> tuple[int, Method] | None:
        for index in range(start, len(order)):
            ancestor = order[index]
            if not isinstance(ancestor, Class) or self._lineage.is_root(ancestor):
                continue
            for method in ancestor.facts.methods:
                if method.name == name:
                    return index, method
            if name in ancestor.facts.attributes:
                found = self._alias(ancestor, ancestor.facts.attributes[name])
                return (index, found) if found else (index, Method(name=name, line=ancestor.facts.line))
        return None

    def _follow(self, order: Sequence[Ancestor], index: int, method: Method) -> list[Check]:
        """What a method of one of the classes reaches."""
        here = order[index]
        if method.empty == "is skipped" or not isinstance(here, Class):
            return []
        key = (id(order), index, method.name)
        return self._memo.once(key, lambda: _kept(self._calls(order, index, here, method)))

    def _calls(
        self, order: Sequence[Ancestor], index: int, here: Class | Function, method: Method, test: str | None = None
    ) -> Iterator[Check]:
        """What the calls in a method reach, or those that a function makes on the parameter `test`."""
        visible, expected = conditions(method.decorators), expects_failure(method.decorators)
        for call in method.calls:
            for check in self._call(order, index, here, call) if test in {None, call.object} else ():
                yield replace(
                    check,
                    when=method.when + call.when + check.when,
                    visible=visible + check.visible,
                    caught=call.caught or check.caught or expected,
                )

    def _call(self, order: Sequence[Ancestor], index: int, here: Class | Function, call: MethodCall) -> Iterator[Check]:
        made = Check(test=self._test, call=call, path=here.path)
        if call.receiver in {"self", "super"}:
            found = self._find(order, call.name, index + 1 if call.receiver == "super" else 0)
            if found is not None:
                yield from self._follow(order, *found)
            elif is_check(call.name):
                yield made
            return
        if call.receiver == "free" and call.name in FREE_CHECKS:
            yield made
            return
        scope = here.facts.scope if isinstance(here, Class) else here.scope
        for target in self._names.resolve(Place(here.path, scope, environment=here.environment), call.owner):
            if call.receiver == "class":  # `Parent.test_check_grad(self)`
                theirs = self._lineage.order(target) if isinstance(target, Class) else ()
                found = self._find(theirs, call.name)
                if found is not None:
                    # What it calls on self is looked up from the class that is tested.
                    owner = theirs[found[0]]
                    where, at = (order, order.index(owner)) if owner in order else (theirs, found[0])
                    yield from self._follow(where, at, found[1])
                elif is_check(call.name) and isinstance(target, Class | Outside):
                    yield made
            elif isinstance(target, Function):
                yield from self._handed(order, target, call.place)

    def _handed(self, order: Sequence[Ancestor], function: Function, place: str) -> list[Check]:
        """A function that is handed the test: `check_all(self)`, `check_all(times=2, test=self)`."""
        scope = self._names.facts(function.path).scopes[function.scope]
        method, names = scope.method, scope.parameters
        if place.isdecimal():
            place = names[int(place)] if int(place) < len(names) else ""
        if method is None:
            return []
        key = (id(order), function.path, function.scope, place)
        return self._memo.once(key, lambda: _kept(self._calls(order, 0, function, method, place)))


def _kept(checks: Iterable[Check]) -> list[Check]:
    """Of the same call under the same conditions one; and not more than can be told apart."""
    kept = {(c.path, c.call.line, c.call.name, c.when, c.visible, c.caught): c for c in checks}
    ordered = sorted(kept.values(), key=lambda c: (c.caught, len(c.when) + len(c.visible)))
    return ordered[:_MOST_CHECKS]
