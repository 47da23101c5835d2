"""Comparing nested values: their structure first, then leaf by leaf, as tensors are compared.

A list for a tuple of the same length, or another kind of mapping with the same keys, is told and does not
fail; a lost or gained element, another class and another type of leaf do. Numbers of Python are compared as
tensors without dimensions, and with such tensors where dtypes need not agree; text and the like exactly. Two
Nones are the same and no evidence: a test whose functions forgot to return must not pass.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from karat.bundles.extents import BLOCK, read_all
from karat.bundles.structure import flatten, tensor_names
from karat.bundles.values import READERS, Flat
from karat.findings import Finding, Severity
from karat.tensors.compare import compare_tensors
from karat.tensors.comparison import Comparison, Report, within
from karat.tensors.tensor import CannotStore, Tensor, TensorExtent

_FAMILIES = {
    "list": "sequence", "tuple": "sequence", "torch.Size": "sequence", "slice": "sequence",
    "range": "sequence", "dict": "mapping", "ordereddict": "mapping", "defaultdict": "mapping",
    "dataclass": "record", "namedtuple": "record", "structseq": "record", "enum": "enum",
}  # fmt: skip
"""Kinds whose parts are compared with each other."""
# Quotes inside of text are escaped, so this is no text.
_NAN = re.compile(rb'\{"(float":|complex":\[("[^"]*",)?)"nan')
_Tensors = Mapping[str, Tensor | TensorExtent]
_Leaf = tuple[str, Tensor | TensorExtent]
_Entries = Mapping[str, tuple[str, Any]]
"""What makes a key the same on both sides → how it is shown, and the value."""


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """How leaves are compared; None for the tolerance of their dtype."""

    rtol: float | None = None
    atol: float | None = None
    equal_nan: bool = False
    check_dtype: bool = True


def compare_values(
    expected: Any,
    actual: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
) -> Report:
    """Actual against expected, both nested; CannotStore names what has no form to be compared in."""
    measure = Measure(rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=check_dtype)
    return compare_flats(_flat(expected, "expected"), _flat(actual, "actual"), measure)


def _flat(value: Any, side: str) -> Flat:
    if isinstance(value, Flat):
        return value
    try:
        return flatten(value, "expected")
    except CannotStore as error:
        # Both are flattened as `expected`, so that tensors at one place have one name.
        message = str(error)
        raise CannotStore(side + message.removeprefix("expected")) from None


def compare_flats(expected: Flat, actual: Flat, measure: Measure) -> Report:
    """The same for values that are taken apart already; their tensors may lie in a bundle."""
    walk = _Walk(expected.tensors, actual.tensors, measure)
    walk.compare(expected.structure, actual.structure, "expected")
    told = all(found.severity is not Severity.FAIL for found in walk.findings)
    if told and all(each.dtype == "None" for each in walk.comparisons):
        walk.tell("nothing-compared", "expected", "expected a value to compare, found none in it")
    return Report(comparisons=tuple(walk.comparisons), findings=tuple(walk.findings))


class _Walk:
    def __init__(self, expected: _Tensors, actual: _Tensors, measure: Measure) -> None:
        self._expected, self._actual, self._measure = expected, actual, measure
        self.comparisons: list[Comparison] = []
        self.findings: list[Finding] = []

    def tell(self, kind: str, name: str, message: str, severity: Severity = Severity.FAIL) -> None:
        self.findings.append(
            Finding(kind=kind, severity=severity, message=f"{within(name)}{message}", where=name)
        )

    def compare(self, expected: Any, actual: Any, name: str) -> None:
        one, other = _leaf(expected, self._expected), _leaf(actual, self._actual)
        family = _FAMILIES.get(_kind(expected))
        alike = one is not None and other is not None and one[0] == other[0]
        if one is not None and other is not None and (alike or not self._measure.check_dtype):
            self._numbers(one[1], other[1], _name(expected) or name)
        elif family is not None and family == _FAMILIES.get(_kind(actual)):
            _PARTS[family](self, expected, actual, name)
        elif _kind(expected) != _kind(actual):
            self.tell("type-changed", name, f"expected {_said(expected)}, found {_said(actual)}")
        else:
            self._exact(expected, actual, name)

    def _numbers(
        self, expected: Tensor | TensorExtent, actual: Tensor | TensorExtent, name: str
    ) -> None:
        measure = self._measure
        self.comparisons.append(
            compare_tensors(
                name,
                expected,
                actual,
                rtol=measure.rtol,
                atol=measure.atol,
                equal_nan=measure.equal_nan,
                check_dtype=measure.check_dtype,
            )
        )

    def _exact(self, expected: Any, actual: Any, name: str) -> None:
        """Text, None, booleans, bytes, sets, names of dtypes: what has no distance."""
        kind = _kind(expected)
        told: tuple[Finding, ...] = ()
        message = None
        if expected != actual:
            message = f"{within(name)}expected {_said(expected)}, found {_said(actual)}"
        elif not self._measure.equal_nan and _NAN.search(msgspec.json.encode(expected)):
            message = (
                f"{within(name)}expected equal values, found NaN in a {kind} on both sides, and NaN equals "
                "nothing unless equal_nan is asked for"
            )
        if message is not None:
            change = "text-changed" if kind == "str" else "value-drift"
            told = (Finding(kind=change, severity=Severity.FAIL, message=message, where=name),)
        self.comparisons.append(Comparison(name=name, dtype=kind, shape=(), findings=told))

    def sequences(self, expected: Any, actual: Any, name: str) -> None:
        self._same_kind(expected, actual, name)
        old, new = _content(expected), _content(actual)
        if len(old) != len(new):
            message = f"expected {_counted(len(old))}, found {_counted(len(new))}"
            self.tell("structure-changed", name, message)
        self._entries(
            {str(index): (str(index), value) for index, value in enumerate(old)},
            {str(index): (str(index), value) for index, value in enumerate(new)},
            name,
        )

    def mappings(self, expected: Any, actual: Any, name: str) -> None:
        self._same_kind(expected, actual, name)
        old, new = _keyed(expected, self._expected), _keyed(actual, self._actual)
        if old.keys() != new.keys():
            message = f"expected the keys {_listed(old)}, found {_listed(new)}"
            self.tell("structure-changed", name, message)
        self._entries(old, new, name)

    def records(self, expected: Any, actual: Any, name: str) -> None:
        old, new = _fields(expected), _fields(actual)
        if (_kind(expected), _content(expected)) != (_kind(actual), _content(actual)):
            self.tell("type-changed", name, f"expected {_said(expected)}, found {_said(actual)}")
        elif old.keys() != new.keys():
            message = f"expected the fields {_listed(old)}, found {_listed(new)}"
            self.tell("structure-changed", name, message)
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
                self.tell("lost-tensor", f"{name}/{shown}", "expected a tensor, found none")
        for key, (shown, value) in new.items():
            if key not in old and next(tensor_names(value), None) is not None:
                self.tell("gained-tensor", f"{name}/{shown}", "expected no tensor, found one")

    def _same_kind(self, expected: Any, actual: Any, name: str) -> None:
        old, new = _kind(expected), _kind(actual)
        if old != new:
            message = f"expected a {old}, found a {new}; what they hold is compared"
            self.tell("structure-changed", name, message, Severity.INFO)


_PARTS: Mapping[str, Callable[[_Walk, Any, Any, str], None]] = {
    "sequence": _Walk.sequences,
    "mapping": _Walk.mappings,
    "record": _Walk.records,
    "enum": _Walk.members,
}


def _kind(node: Any) -> str:
    """What a node of a structure is: the key that says so, or the type of a plain value."""
    if isinstance(node, dict):
        first = str(next(iter(node)))
        return {"text": "str", "scalar": "tensor"}.get(first, first)
    return "None" if node is None else type(node).__name__


def _content(node: dict[str, Any]) -> Any:
    return next(iter(node.values()))


def _name(node: Any) -> str | None:
    return str(_content(node)) if _kind(node) == "tensor" else None


def _fields(node: dict[str, Any]) -> _Entries:
    return {field: (field, value) for field, value in node["fields"]}


def _keyed(node: dict[str, Any], tensors: _Tensors) -> _Entries:
    found = {}
    for key, value in _content(node):
        shown = key if isinstance(key, str) else msgspec.json.encode(key).decode()
        same = (
            f"{tensors[key['scalar']].dtype}:{_bytes(tensors[key['scalar']])!r}"
            if isinstance(key, dict) and "scalar" in key
            else msgspec.json.encode(key).decode()
        )
        found[same] = (shown[:100], value)
    return found


def _bytes(tensor: Tensor | TensorExtent) -> bytes:
    return bytes(tensor.data) if isinstance(tensor, Tensor) else read_all(tensor.extent, BLOCK)


def _leaf(node: Any, tensors: _Tensors) -> _Leaf | None:
    """A tensor, or a number of Python as one; None for what is neither."""
    kind = _kind(node)
    if kind == "tensor":
        return "tensor", tensors[_content(node)]
    if kind not in {"int", "float", "complex"}:
        return None
    value = READERS[kind](_content(node)) if isinstance(node, dict) else node
    if kind == "int":
        whole = -(1 << 63) <= value < 1 << 63
        return ("int", _single("int64", struct.pack("<q", value))) if whole else None
    parts = (value,) if kind == "float" else (value.real, value.imag)
    return kind, _single(f"{kind}{64 * len(parts)}", struct.pack(f"<{len(parts)}d", *parts))


def _single(dtype: str, data: bytes) -> Tensor:
    return Tensor(dtype=dtype, shape=(), data=memoryview(data))


def _said(node: Any) -> str:
    """A node in a sentence."""
    kind = _kind(node)
    if kind in {"dataclass", "namedtuple", "structseq"}:
        return f"a {kind} {_content(node)}"
    if kind in _FAMILIES and kind != "enum":
        return f"a {kind} of {len(_content(node))}"
    if kind in {"tensor", "None"}:
        return {"tensor": "a tensor"}.get(kind, kind)
    shown = _shown(kind, node) if isinstance(node, dict) else repr(node)
    return f"{kind} {shown}" if len(shown) <= 80 else f"{kind} {shown[:80]}…"


def _shown(kind: str, node: dict[str, Any]) -> str:
    """A float as Python writes it; what is no number as its JSON."""
    if kind in {"int", "float", "complex"}:
        value = READERS[kind](_content(node))
        return hex(value) if kind == "int" else repr(value)
    return msgspec.json.encode(node).decode()


def _listed(entries: _Entries) -> str:
    names = [shown for shown, _ in entries.values()]
    return f"{', '.join(names[:8]) or 'none at all'}{', …' if len(names) > 8 else ''}"


def _counted(count: int) -> str:
    return "1 element" if count == 1 else f"{count} elements"
