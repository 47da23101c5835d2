"""What a suite states about its own gate, read from its tree: which metrics a test gates, thresholds, flaky models.

In: the table [suite] and the root of a tree. Out: rules and flaky rows, each with the file and line that states it. Nothing
is executed: Python is read as a syntax tree, and of YAML only what is asked for. What cannot be understood is left out,
and then the preset's own rules hold, which gate more rather than less.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from karat.compare.rules import PartialRule
from karat.settings import SuiteSettings
from karat.system.foreign.limits import SOURCE, read_plain

if TYPE_CHECKING:
    import ast


class SuiteFact(msgspec.Struct, frozen=True):
    """One thing that a suite's tree says about its gate."""

    says: str
    origin: str  # The file and line; of several that say the same, the first.
    files: int = 1


class Suite:
    """The facts of one tree, read when first asked for."""

    def __init__(self, settings: SuiteSettings, root: Path, known: Sequence[PartialRule]) -> None:
        self._settings, self._root = settings, root
        self._known = {rule.pattern: rule.origin for rule in known if rule.pattern != "*"}
        self._tests: dict[str, Mapping[str, Sequence[PartialRule]]] = {}

    def rules(self, path: str) -> Mapping[str, Sequence[PartialRule]]:
        """Metric → what the suite says of it in a golden, the most specific first."""
        folder = path.rpartition("/")[0]
        if folder not in self._tests:
            found: dict[str, list[PartialRule]] = {}
            for rule in (*self._of_test(folder), *self._thresholds):
                found.setdefault(rule.pattern, []).append(rule)
            self._tests[folder] = found
        return self._tests[folder]

    def flaky(self, path: str) -> Iterator[tuple[str, str, str]]:
        """Column, row and origin of whatever never fails in a golden."""
        for column, needle, row, origin in self._flaky:
            if needle in path:
                yield column, row, origin

    def facts(self, goldens: Iterable[str]) -> list[SuiteFact]:
        """All that the tree says, for people to read; `goldens` are the paths of those that there are."""
        tests: dict[str, list[str]] = {}
        for folder in dict.fromkeys(path.rpartition("/")[0] for path in goldens):
            rules = list(self._of_test(folder))
            gated = [r.pattern + (" exactly" if "check" in r.sets else "") for r in rules if "required" in r.sets]
            if rules:
                where = rules[0].origin.partition(" over ")[0]
                tests.setdefault(f"gates {', '.join(gated) or 'nothing'}", []).append(where)
        limits = [
            SuiteFact(
                f"{rule.pattern}: {', '.join(f'{name} {value:g}' for name, value in rule.sets.items())}", rule.origin
            )
            for rule in self._thresholds
        ]
        flaky = [
            SuiteFact(f"{column} of {row} never fails" + (f" in paths with {needle}" if needle else ""), origin)
            for column, needle, row, origin in self._flaky
        ]
        return [*limits, *(SuiteFact(says, files[0], len(files)) for says, files in tests.items()), *flaky]

    def _read(self, file: str) -> bytes | None:
        try:
            return read_plain(self._root / file, SOURCE)
        except (OSError, ValueError):
            return None

    def _of_test(self, folder: str) -> Iterator[PartialRule]:
        name = self._settings.metrics
        file = f"{folder}/{name}" if folder else str(name)
        data = self._read(file) if name else None
        text = data.decode("utf-8", "replace") if data else ""
        if data is None or (found := _listed(text)) is None:
            return
        line, metrics = found
        gated = self._settings.default_metrics if metrics is None else tuple(metrics)
        allowed = "|".join(map(re.escape, self._settings.approximate))
        approximate = re.search(rf"(?m)^\s+(?:{allowed})\s*:\s*['\"]?1['\"]?\s*(?:#.*)?$", text)
        stated = self._known | {rule.pattern: rule.origin for rule in self._thresholds}
        for metric in gated:
            where = f"{file}:{line} over {stated.get(metric, 'default')}"
            exact = not approximate and metric in self._settings.deterministic
            yield PartialRule(
                metric, {"required": True, **({"check": "exact"} if exact else {})}, where, shape="series"
            )
            yield PartialRule(metric, {} if metric in stated else {"check": "approx"}, where)
        for metric in sorted(stated.keys() - {*gated}):
            yield PartialRule(metric, {"check": "off"}, f"{file}:{line}")

    def _nodes(self, file: str) -> Iterator[tuple[str, ast.AST]]:
        """Every node of a Python file, with the text that a path must contain for it to be run.

        What stands under another condition is left out: nobody knows whether it holds.
        """
        data = self._read(file)
        if data is None:
            return
        import ast

        from karat.policy.scan.source import Unreadable, parse

        try:
            stack: list[tuple[str, ast.AST]] = [("", parse(data))]
        except Unreadable:
            return
        while stack:
            needle, node = stack.pop()
            children = ast.iter_child_nodes(node)
            if isinstance(node, ast.If):
                test = node.test
                contains = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In) and not needle
                needle = str(getattr(test.left, "value", "")) if isinstance(test, ast.Compare) and contains else ""
                children = iter(node.body if needle else ())
            yield needle, node
            stack += [(needle, child) for child in reversed([*children])]

    @cached_property
    def _thresholds(self) -> tuple[PartialRule, ...]:
        """The tolerance of every metric that the suite's code has one for."""
        import ast

        file = self._settings.thresholds
        found = []
        for _, node in self._nodes(file) if file else ():
            if not isinstance(node, ast.Assign) or not _named(node.targets[0], "CHECK_THRESHOLDS"):
                continue
            for key, tests in zip(getattr(node.value, "keys", ()), getattr(node.value, "values", ()), strict=True):
                words = [word for test in ast.walk(tests) if isinstance(test, ast.Call) for word in test.keywords]
                sets = {word.arg: float(value) for word in words if (value := _number(word.value)) is not None}
                tolerance: dict[str, float] = {name: sets[name] for name in ("rtol", "atol") if name in sets}
                if isinstance(key, ast.Constant) and isinstance(key.value, str) and tolerance:
                    found.append(PartialRule(key.value, tolerance, f"{file}:{key.lineno}", shape="series"))
        return tuple(found)

    @cached_property
    def _flaky(self) -> Sequence[tuple[str, str, str, str]]:
        """Column, what the golden's path must contain, row, and origin."""
        return [
            (column, needle, row, f"{file}:{line}")
            for column, file in self._settings.flaky.items()
            for needle, node in self._nodes(file)
            for row, line in _rows(node)
        ]


def _named(node: object, name: str) -> bool:
    return getattr(node, "id", None) == name


def _number(node: object) -> float | None:
    value = getattr(node, "value", None)
    return value if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e6 else None


def _rows(node: ast.AST) -> Iterator[tuple[str, int]]:
    """The texts, with their lines, that a statement puts into `flaky_models`."""
    import ast

    values: Sequence[ast.AST | None] = ()
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        values = [node.value] if _named(target, "flaky_models") else ()
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
        values = node.args if _named(node.func.value, "flaky_models") else ()
    for item in (item for value in values for item in getattr(value, "elts", ())):
        if isinstance(item, ast.Constant) and isinstance(item.value, str):
            yield item.value, item.lineno


_COMMENT = re.compile(r"(?:^|\s)#.*")
_ITEM = re.compile(r"\s*(?:\"([^\"]*)\"|'([^']*)'|(\w[\w .-]*?))\s*")


def _listed(text: str) -> tuple[int, list[str] | None] | None:
    """The line of METRICS and what it lists; no list: None; in a way that is not understood: nothing at all."""
    heads = list(re.finditer(r"(?m)^METRICS:(.*)$", text))
    if not heads:
        return 1, None
    head = heads[-1]  # of several, the last one holds
    said, items = _COMMENT.sub("", head[1]).strip(), []
    if said:
        if said[0] + said[-1] != "[]":
            return None
        items = said[1:-1].split(",")
    for line in () if said else text[head.end() :].splitlines():
        if (below := _COMMENT.sub("", line).strip()) and not below.startswith("- "):
            break
        items.append(below[2:])
    plain = [_ITEM.fullmatch(item) for item in items if item.strip()]
    names = [next(filter(None, match.groups()), "") for match in plain if match]
    return (text.count("\n", 0, head.start()) + 1, names) if len(names) == len(plain) else None
