"""Compare nested values: their structure first, then leaf by leaf, as tensors are compared.

A list for a tuple of the same length, or another kind of mapping with the same keys, is reported and does not fail; a
lost or gained element, another class and another type of leaf do. Numbers of Python are compared as tensors without
dimensions, and with such tensors if dtypes need not agree; text and the like exactly. Two Nones are the same and no
evidence: a test whose functions forgot to return must not pass.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any, Unpack

import msgspec

from karat.bundles.extents import read_all
from karat.bundles.structure import flatten, tensor_names
from karat.bundles.values import READERS, Flat
from karat.findings import Finding, Severity, fail
from karat.report.words import count
from karat.tensors.compare import compare_tensors
from karat.tensors.comparison import Comparison, ComparisonReport, Criteria, within
from karat.tensors.tensor import BLOCK, CannotStore, Tensor, TensorExtent

_FAMILIES = {
    **dict.fromkeys(("list", "tuple", "torch.Size", "slice", "range"), "sequences"),
    **dict.fromkeys(("dict", "ordereddict", "defaultdict"), "mappings"),
    **dict.fromkeys(("dataclass", "namedtuple", "structseq"), "records"),
    "enum": "members",
}
"""Kinds whose parts are compared with each other → the method that does."""
# Quotes inside of text are escaped, so this is no text.
_NAN = re.compile(rb'\{"(float":|complex":\[("[^"]*",)?)"nan')
_Tensors = Mapping[str, Tensor | TensorExtent]
_Entries = Mapping[str, tuple[str, Any]]  # What makes a key the same on both sides → how it is shown, and the value.


def compare_values(expected: Any, actual: Any, **criteria: Unpack[Criteria]) -> ComparisonReport:
    """Actual against expected, nested or flattened; CannotStore names what has no form to be compared in."""
    one, other = _flat(expected, "expected"), _flat(actual, "actual")
    walk = _Comparer(one.tensors, other.tensors, criteria)
    walk.compare(one.structure, other.structure, "expected")
    failed = any(found.severity is Severity.FAIL for found in walk.findings)
    if not failed and all(each.dtype == "None" for each in walk.comparisons):
        walk.report("nothing-compared", "expected", "expected a value to compare, found none in it")
    return ComparisonReport(comparisons=tuple(walk.comparisons), findings=tuple(walk.findings))


def _flat(value: Any, side: str) -> Flat:
    if isinstance(value, Flat):
        return value
    try:
        return flatten(value, "expected")
    except CannotStore as error:
        # Both are flattened as `expected`, so that tensors at one place have one name.
        raise CannotStore(side + str(error).removeprefix("expected")) from None


class _Comparer:
    def __init__(self, expected: _Tensors, actual: _Tensors, criteria: Criteria) -> None:
        self._expected, self._actual, self._criteria = expected, actual, criteria
        self.comparisons: list[Comparison] = []
        self.findings: list[Finding] = []

    def report(self, kind: str, name: str, message: str, severity: Severity = Severity.FAIL) -> None:
        self.findings.append(Finding(kind=kind, severity=severity, message=f"{within(name)}{message}", where=name))

    def compare(self, expected: Any, actual: Any, name: str) -> None:
        own = str(_content(expected)) if _kind(expected) == "tensor" else None
        one, other = _leaf(expected, self._expected), _leaf(actual, self._actual)
        family = _FAMILIES.get(_kind(expected))
        alike = one is not None and other is not None and one[0] == other[0]
        if one is not None and other is not None and (alike or not self._criteria.get("check_dtype", True)):
            self.comparisons.append(compare_tensors(own or name, one[1], other[1], **self._criteria))
        elif family is not None and family == _FAMILIES.get(_kind(actual)):
            getattr(self, family)(expected, actual, name)
        elif _kind(expected) != _kind(actual):
            self.report("type-changed", name, f"expected {_describe(expected)}, found {_describe(actual)}")
        else:
            self._exact(expected, actual, name)

    def _exact(self, expected: Any, actual: Any, name: str) -> None:
        """Text, None, booleans, bytes, sets, names of dtypes: what has no distance."""
        kind = _kind(expected)
        message = None
        if expected != actual:
            message = f"expected {_describe(expected)}, found {_describe(actual)}"
        elif not self._criteria.get("equal_nan", False) and _NAN.search(msgspec.json.encode(expected)):
            message = (
                f"expected equal values, found NaN in a {kind} on both sides, and NaN equals nothing without equal_nan"
            )
        change = "text-changed" if kind == "str" else "value-drift"
        findings = () if message is None else (fail(change, f"{within(name)}{message}", where=name),)
        self.comparisons.append(Comparison(name=name, dtype=kind, shape=(), findings=findings))

    def sequences(self, expected: Any, actual: Any, name: str) -> None:
        self._same_kind(expected, actual, name)
        old, new = _content(expected), _content(actual)
        if len(old) != len(new):
            counted = count(len(old), "element")
            self.report("structure-changed", name, f"expected {counted}, found {count(len(new), 'element')}")
        by_index = [{str(i): (str(i), value) for i, value in enumerate(side)} for side in (old, new)]
        self._entries(by_index[0], by_index[1], name)

    def mappings(self, expected: Any, actual: Any, name: str) -> None:
        self._same_kind(expected, actual, name)
        old, new = _keyed(expected, self._expected), _keyed(actual, self._actual)
        if old.keys() != new.keys():
            self.report("structure-changed", name, f"expected the keys {_names(old)}, found {_names(new)}")
        self._entries(old, new, name)

    def records(self, expected: Any, actual: Any, name: str) -> None:
        old, new = _fields(expected), _fields(actual)
        if (_kind(expected), _content(expected)) != (_kind(actual), _content(actual)):
            self.report("type-changed", name, f"expected {_describe(expected)}, found {_describe(actual)}")
        elif old.keys() != new.keys():
            self.report("structure-changed", name, f"expected the fields {_names(old)}, found {_names(new)}")
        self._entries(old, new, name)

    def members(self, expected: Any, actual: Any, name: str) -> None:
        """Of enums: by class and name; the value is the enum's own business unless they differ."""
        if (expected["enum"], expected["member"]) == (actual["enum"], actual["member"]):
            self.compare(expected["value"], actual["value"], name)
        else:
            self._exact(expected, actual, name)

    def _entries(self, old: _Entries, new: _Entries, name: str) -> None:
        for key, (shown, value) in old.items():
            if key in new:
                self.compare(value, new[key][1], f"{name}/{shown}")
            elif next(tensor_names(value), None) is not None:
                self.report("lost-tensor", f"{name}/{shown}", "expected a tensor, found none")
        for key, (shown, value) in new.items():
            if key not in old and next(tensor_names(value), None) is not None:
                self.report("gained-tensor", f"{name}/{shown}", "expected no tensor, found one")

    def _same_kind(self, expected: Any, actual: Any, name: str) -> None:
        old, new = _kind(expected), _kind(actual)
        if old != new:
            message = f"expected a {old}, found a {new}; what they hold is compared"
            self.report("structure-changed", name, message, Severity.INFO)


def _kind(node: Any) -> str:
    """What a node of a structure is: the key that says so, or the type of a plain value."""
    if isinstance(node, dict):
        first = str(next(iter(node)))
        return {"text": "str", "scalar": "tensor"}.get(first, first)
    return "None" if node is None else type(node).__name__


def _content(node: dict[str, Any]) -> Any:
    return next(iter(node.values()))


def _fields(node: dict[str, Any]) -> _Entries:
    return {field: (field, value) for field, value in node["fields"]}


def _keyed(node: dict[str, Any], tensors: _Tensors) -> _Entries:
    found = {}
    for key, value in _content(node):
        shown = key if isinstance(key, str) else msgspec.json.encode(key).decode()
        same = msgspec.json.encode(key).decode()
        if isinstance(key, dict) and "scalar" in key:
            one = tensors[key["scalar"]]
            data = bytes(one.data) if isinstance(one, Tensor) else read_all(one.extent, BLOCK)
            same = f"{one.dtype}:{data!r}"
        found[same] = (shown[:100], value)
    return found


def _leaf(node: Any, tensors: _Tensors) -> tuple[str, Tensor | TensorExtent] | None:
    """A tensor, or a number of Python as one; None for what is neither."""
    kind = _kind(node)
    if kind == "tensor":
        return "tensor", tensors[_content(node)]
    if kind not in {"int", "float", "complex"}:
        return None
    value = READERS[kind](_content(node)) if isinstance(node, dict) else node
    if kind == "int":
        if not -(1 << 63) <= value < 1 << 63:
            return None
        dtype, data = "int64", struct.pack("<q", value)
    else:
        parts = (value,) if kind == "float" else (value.real, value.imag)
        dtype, data = f"{kind}{64 * len(parts)}", struct.pack(f"<{len(parts)}d", *parts)
    return kind, Tensor(dtype=dtype, shape=(), data=memoryview(data))


def _describe(node: Any) -> str:
    kind = _kind(node)
    if kind in {"dataclass", "namedtuple", "structseq"}:
        return f"a {kind} {_content(node)}"
    if kind in _FAMILIES and kind != "enum":
        return f"a {kind} of {len(_content(node))}"
    if kind in {"tensor", "None"}:
        return "a tensor" if kind == "tensor" else kind
    if not isinstance(node, dict):
        shown = repr(node)
    elif kind in {"int", "float", "complex"}:
        value = READERS[kind](_content(node))
        shown = hex(value) if kind == "int" else repr(value)
    else:
        shown = msgspec.json.encode(node).decode()
    return f"{kind} {shown}" if len(shown) <= 80 else f"{kind} {shown[:80]}…"


def _names(entries: _Entries) -> str:
    names = [shown for shown, _ in entries.values()]
    return f"{', '.join(names[:8]) or 'none at all'}{', …' if len(names) > 8 else ''}"
