"""Selection: which tests pytest found, which of them it is to run, and whether somebody narrowed it."""

from __future__ import annotations

import sys
import unittest
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from karat.policy.recording import unit_of
from karat.policy.records import Collected

_NARROWING = ("keyword", "markexpr", "lf", "deselect", "ignore", "ignore_glob", "stepwise")
_LOOKING = ("collectonly", "showfixtures", "show_fixtures_per_test", "setuponly", "setupplan")


class Selection:
    """The items before and after everybody had a say in them."""

    def __init__(self, config: pytest.Config) -> None:
        self._args = tuple(config.args)
        self._found: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()
        self._op_tests: dict[str, str | None] = {}
        self._methods: dict[str, int] = {}

    def found(self, items: Iterable[pytest.Item]) -> None:
        """All that was collected."""
        for item in items:
            unit = unit_of_item(item)
            self._found[unit] += 1
            if self._found[unit] > 1:
                continue
            kind = getattr(item, "cls", None)
            op = spec_op(item)
            if op is not None or is_op_test(kind):
                self._op_tests[unit] = op
            if isinstance(kind, type) and issubclass(kind, unittest.TestCase):
                self._methods[unit] = len(methods_of(kind))

    def kept(self, items: Iterable[pytest.Item]) -> None:
        """What is left of it to run."""
        self._kept = Counter(map(unit_of_item, items))

    def op_tests(self) -> list[str]:
        """Tests that are op tests by their class."""
        return sorted(self._op_tests)

    def collected(self, unit: str) -> Collected:
        """What is known of one test before it runs."""
        total = max(self._found[unit], self._methods.get(unit, 0))
        if unit not in self._methods and _is_named_in_part(unit, self._args):
            total += 1  # how many there are, nobody looked
        kept = self._kept[unit]
        return Collected(
            test=unit,
            op=self._op_tests.get(unit),
            selected=kept,
            deselected=total - kept,
            op_test=unit in self._op_tests,
        )


def is_op_test(kind: object) -> bool:
    """Whether a class is an op test; who never imported the base class has none."""
    base = getattr(sys.modules.get("karat.optests.op_test"), "OpTest", None)
    return base is not None and isinstance(kind, type) and issubclass(kind, base)


def spec_op(item: pytest.Item) -> str | None:
    """The op of an item that was made from an `OpSpec`, else None."""
    made = getattr(sys.modules.get("karat.optests.spec_cases"), "Case", None)
    params = getattr(getattr(item, "callspec", None), "params", {})
    case = params.get("case")
    return str(case.spec.op) if made is not None and isinstance(case, made) else None


def unit_of_item(item: pytest.Item) -> str:
    """The test that an item belongs to; each op of a class made from specs is a test of its own."""
    op = spec_op(item)
    return unit_of(item.nodeid) if op is None else f"{unit_of(item.nodeid)}[{op}]"


def methods_of(kind: type[unittest.TestCase]) -> list[str]:
    """The test methods that pytest would run, were none left out."""
    names = unittest.defaultTestLoader.getTestCaseNames(kind)
    return [name for name in names if getattr(getattr(kind, name), "__test__", True)]


def _is_named_in_part(unit: str, args: Sequence[str]) -> bool:
    """Whether an argument names an item of a test, and not the whole: `test_a.py::TestA::test_b`, `…::test_c[x]`."""
    names = unit.partition("::")[2].partition("[")[0]
    for arg in args:
        _, colons, inner = arg.partition("::")
        if colons and unit_of(f"f::{inner}").partition("::")[2] == names and inner != names:
            return True
    return False


def is_narrowed(config: pytest.Config) -> bool:
    """Whether paths or options left anything out."""
    source = getattr(config, "args_source", None)
    below = config.invocation_params.dir != config.rootpath
    named = source is None or source.name == "ARGS" or (source.name == "INVOCATION_DIR" and below)
    return named or any(config.getoption(option, None) for option in _NARROWING)


def only_looks(config: pytest.Config) -> bool:
    """Whether tests are listed, and not run."""
    return any(config.getoption(word, False) for word in _LOOKING)
