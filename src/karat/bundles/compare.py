"""Compare nested values: their structure first, then leaf by leaf, as tensors are compared.

A list for a tuple of the same length, or another kind of mapping with the same keys, is reported and does not fail; a
lost or gained element, another class and another type of leaf do. Numbers of Python are compared as tensors without
dimensions, and with such tensors if dtypes need not agree; text and the like exactly. Two Nones are the same and no
evidence: a test whose functions forgot to return must not pass.

A tolerance that nothing can exceed is no evidence, either: `accepted_controls` says which wrong outputs it would let pass.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Unpack

import msgspec
import numpy as np

from karat.bundles.extents import read_all
from karat.bundles.manifest import Comparator, Manifest
from karat.bundles.structure import flatten, tensor_names
from karat.bundles.values import READERS, Flat
from karat.findings import Finding, Severity, fail
from karat.report.words import count
from karat.system.command import Command
from karat.tensors.bits import Values
from karat.tensors.compare import compare_tensors
from karat.tensors.comparison import Comparison, ComparisonReport, Criteria, Tolerance, within
from karat.tensors.dtypes import tolerance_for
from karat.tensors.statistics import largest_of, sample_of
from karat.tensors.tensor import BLOCK, CannotStore, Tensor, TensorExtent

_PARTS = {
    **dict.fromkeys(("list", "tuple", "torch.Size", "slice", "range"), "elements"),
    **dict.fromkeys(("dict", "ordereddict", "defaultdict"), "keys"),
    **dict.fromkeys(("dataclass", "namedtuple", "structseq"), "fields"),
}
"""Kinds whose parts are compared with each other → what those are."""
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


CONTROLS = {
    "zeros": "zeros",
    "another": "the values of another tensor of the case",
    "permuted": "the same elements in another order",
    "one-element": "one element that is off by 10%",
}
_SAMPLE = 1 << 16  # Elements that stand for all of a larger tensor.


def accepted_controls(inputs: Flat, expected: Flat, comparator: Comparator) -> tuple[str, ...]:
    """The wrong outputs of `CONTROLS` that would pass in place of the expected ones, as far as the comparator says how.

    A control passes if it does for every tensor and number that it changes. Zeros and one element are judged by the
    largest of all elements, the other two by a sample where there are many.
    """
    accepted: dict[str, bool] = {}
    given = comparator.rtol, comparator.atol
    for name, tensor in expected.tensors.items():
        if isinstance(tensor, Tensor) and (held := sample_of(tensor, _SAMPLE)) is not None and held.size:
            others = [each for flat in (inputs, expected) for key, each in flat.tensors.items() if key != name]
            alike = [each for each in others if isinstance(each, Tensor) and each.shape == tensor.shape]
            how = tolerance_for(tensor.dtype, tensor.dtype, *given, integers=comparator.integers)
            top = largest_of(tensor) if prod(tensor.shape) > _SAMPLE else None
            for control, passed in _tried(held, how, alike, top):
                accepted[control] = accepted.get(control, True) and passed
    for number in comparator.results:
        at = number.numbers and number.numbers.max_expected
        if number.name not in expected.tensors and number.tolerance is not None and at is not None:
            for control, passed in _tried(np.array([at]), number.tolerance, (), None):
                accepted[control] = accepted.get(control, True) and passed
    return tuple(control for control in CONTROLS if accepted.get(control))


def control_findings(manifest: Manifest, severity: Severity = Severity.INFO) -> Iterator[Finding]:
    """What the controls of a case found when it was captured."""
    if manifest.vacuous:
        wrong, label = " and ".join(CONTROLS[name] for name in manifest.vacuous), manifest.identity.label
        said = f"{label} would pass as well with {wrong} in place of what is expected"
        numbers = dict.fromkeys(manifest.vacuous, 1)
        then = Command("karat", "help", "vacuous-golden")
        yield Finding(
            kind="vacuous-golden", severity=severity, message=said, path=manifest.path, numbers=numbers, next=then
        )


def _tried(held: Values, given: Tolerance, others: Sequence[Tensor], top: float | None) -> Iterator[tuple[str, bool]]:
    """Control → whether it passes for a tensor; none that would not change it."""

    def passes(wrong: Values) -> bool:
        with np.errstate(all="ignore"):
            inside = np.abs(wrong - held) <= given.atol + given.rtol * np.abs(held)
            equal = (wrong == held) | (given.equal_nan & np.isnan(wrong) & np.isnan(held))
        return bool((inside & np.isfinite(held) | equal).all())

    fine = np.isfinite(held)
    top = float(np.abs(held[fine]).max(initial=0)) if top is None else top
    if top:
        yield "zeros", bool(fine.all()) and top <= given.atol + given.rtol * top
        yield "one-element", max(top / 10, 1.0 if given.origin == "integers" else 0.0) <= given.atol + given.rtol * top
    same = partial(np.array_equal, held, equal_nan=True)
    samples = (sample_of(each, _SAMPLE) for each in others)
    # Two elements in a byte are two numbers of one sample.
    found = [each for each in samples if each is not None and each.shape == held.shape and not same(each)]
    if found:
        yield "another", any(passes(other) for other in found)
    if not same(held[::-1]):
        yield "permuted", passes(held[::-1])


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
        kinds = _kind(expected), _kind(actual)
        parts = _PARTS.get(kinds[0])
        alike = one is not None and other is not None and one[0] == other[0]
        if one is not None and other is not None and (alike or not self._criteria.get("check_dtype", True)):
            self.comparisons.append(compare_tensors(own or name, one[1], other[1], **self._criteria))
        elif parts is not None and parts == _PARTS.get(kinds[1]):
            self._parts(parts, expected, actual, name)
        elif kinds[0] != kinds[1]:
            self.report("type-changed", name, f"expected {_describe(expected)}, found {_describe(actual)}")
        elif kinds[0] == "enum" and (expected["enum"], expected["member"]) == (actual["enum"], actual["member"]):
            self.compare(expected["value"], actual["value"], name)
        else:  # text, None, booleans, bytes, sets, names of dtypes: what has no distance
            message = None
            if expected != actual:
                message = f"expected {_describe(expected)}, found {_describe(actual)}"
            elif not self._criteria.get("equal_nan", False) and _NAN.search(msgspec.json.encode(expected)):
                message = f"expected equal values, found NaN in a {kinds[0]} on both sides, and NaN equals nothing without equal_nan"
            change = "text-changed" if kinds[0] == "str" else "value-drift"
            findings = () if message is None else (fail(change, f"{within(name)}{message}", where=name),)
            self.comparisons.append(Comparison(name=name, dtype=kinds[0], shape=(), findings=findings))

    def _parts(self, parts: str, expected: Any, actual: Any, name: str) -> None:
        old, new = _entries(parts, expected, self._expected), _entries(parts, actual, self._actual)
        kinds = _kind(expected), _kind(actual)
        other_class = parts == "fields" and (kinds[0], _content(expected)) != (kinds[1], _content(actual))
        if other_class:
            self.report("type-changed", name, f"expected {_describe(expected)}, found {_describe(actual)}")
        elif kinds[0] != kinds[1]:
            message = f"expected a {kinds[0]}, found a {kinds[1]}; what they hold is compared"
            self.report("structure-changed", name, message, Severity.INFO)
        if old.keys() != new.keys() and not other_class:
            self.report("structure-changed", name, f"expected {_listed(parts, old)}, found {_listed(parts, new)}")
        for key, (shown, value) in old.items():
            if key in new:
                self.compare(value, new[key][1], f"{name}/{shown}")
            elif next(tensor_names(value), None) is not None:
                self.report("lost-tensor", f"{name}/{shown}", "expected a tensor, found none")
        for key, (shown, value) in new.items():
            if key not in old and next(tensor_names(value), None) is not None:
                self.report("gained-tensor", f"{name}/{shown}", "expected no tensor, found one")


def _kind(node: Any) -> str:
    """What a node of a structure is: the key that says so, or the type of a plain value."""
    if isinstance(node, dict):
        first = str(next(iter(node)))
        return {"text": "str", "scalar": "tensor"}.get(first, first)
    return "None" if node is None else type(node).__name__


def _content(node: dict[str, Any]) -> Any:
    return next(iter(node.values()))


def _entries(parts: str, node: dict[str, Any], tensors: _Tensors) -> _Entries:
    if parts == "fields":
        return {field: (field, value) for field, value in node["fields"]}
    if parts == "elements":
        return {str(index): (str(index), value) for index, value in enumerate(_content(node))}
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
    if kind in _PARTS:
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


def _listed(parts: str, entries: _Entries) -> str:
    if parts == "elements":
        return count(len(entries), "element")
    names = [shown for shown, _ in entries.values()]
    return f"the {parts} {', '.join(names[:8]) or 'none at all'}{', …' if len(names) > 8 else ''}"
