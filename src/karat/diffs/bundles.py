"""Two captured cases → a change: tensor by tensor, in blocks.

Old is what is expected, with the tolerance that was recorded with it. What was captured with the same digest is the
same, and is not opened unless everything is asked for. Of what is read, digests are looked at in the same pass, so a
damaged side is `unreadable` whatever the other side says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from math import prod
from typing import Any

from msgspec.structs import replace

from karat.bundles.cases import Case, Spool
from karat.bundles.compare import compare_values
from karat.bundles.extents import require_file
from karat.bundles.manifest import Comparator, Manifest, TensorRecord
from karat.bundles.values import Flat
from karat.bundles.verify import verify_case
from karat.compare.change import Change, MetricChange, Verdict
from karat.compare.pairs import verdict_of
from karat.diffs.cases import CasePair
from karat.findings import CannotVerify, Finding, Severity, fail, info, warn
from karat.report.words import few
from karat.system.processes import available_cores
from karat.tensors.bits import per_element
from karat.tensors.compare import compare_tensors
from karat.tensors.comparison import Comparison, TensorNumbers, within
from karat.tensors.digests import hash_of
from karat.tensors.dtypes import tolerance_for
from karat.tensors.report import place
from karat.tensors.tensor import Damaged

_LARGE = 32 << 20  # Bytes from which a tensor is worth all threads at once, and then no other runs beside it.

Progress = Callable[[int, int], None]
Entry = tuple[MetricChange | None, tuple[Finding, ...]]

# What no tolerance is about: the tensors are not even of one kind.
_BROKEN = frozenset({"dtype-changed", "shape-changed", "type-changed"})
_SHOWN = 8


def compare_cases(
    pairs: Sequence[CasePair], *, everything: bool = False, jobs: int | None = None, progress: Progress | None = None
) -> list[Change]:
    """The changes of all cases, in order; several at a time. With `everything`, same digests are verified, too."""
    threads = jobs or available_cores()
    comparer = _CaseComparer(threads, everything=everything)
    changes = []
    with ThreadPoolExecutor(max(1, min(threads, len(pairs)))) as pool:
        for change in pool.map(comparer.change, pairs):
            changes.append(change)
            if progress is not None:
                progress(len(changes), len(pairs))
    return changes


class _CaseComparer:
    def __init__(self, threads: int, *, everything: bool) -> None:
        self._threads, self._everything = threads, everything
        self._one_large = threading.Lock()

    def change(self, pair: CasePair) -> Change:
        """The change of one case; damage is a finding of it and of no other."""
        broken = [*pair.out_of_reach]
        broken += _failing(f for case in (pair.old, pair.new) if case for f in case.findings)
        if broken:
            return _change(pair, broken)
        if pair.new is None:
            gone = fail("removed-golden", "the case is gone from the new side")
            return _change(pair, [gone], Verdict.REMOVED, pair.old)
        try:
            if pair.old is None:
                damage = _failing(verify_case(pair.new))
                note = info("new-golden", "a new case: there is no old side to compare with")
                return _change(pair, damage) if damage else _change(pair, [note], Verdict.NEW, pair.new)
            return self._compared(pair, pair.old, pair.new)
        except CannotVerify as error:
            # A store that did not answer says nothing about the case, and must not cost the others.
            return _change(pair, [fail("cannot-read", str(error), next=error.next_command)])
        except (Damaged, ValueError) as damage:
            # A manifest may be sealed and still say what no capture would: a tolerance below zero.
            return _change(pair, [fail("bundle-damaged", str(damage))])

    def _compared(self, pair: CasePair, old: Case, new: Case) -> Change:
        entries = [*self._tensors(old, new), *plain_rows(old.manifest, new.manifest)]
        rows = [row for row, _ in entries if row is not None]
        findings = [f for _, found in entries for f in found]
        findings += _programs(old, new, everything=self._everything)
        inputs_differ = any(row.metric.partition("/")[0] == "input" and row.verdict is not Verdict.SAME for row in rows)
        findings += manifest_findings(old.manifest, new.manifest, inputs_differ=inputs_differ)
        findings += [f for case in (old, new) for f in case.findings]
        if any(f.kind == "bundle-damaged" for f in findings):
            return _change(pair, _failing(findings))
        if not rows:
            findings.append(fail("nothing-compared", "neither side holds a tensor or a value, so nothing was compared"))
        same = old.manifest.sha256 == new.manifest.sha256
        return _change(pair, findings, verdict_of(rows, findings), new, metrics=tuple(rows), same_bytes=same)

    def _tensors(self, old: Case, new: Case) -> Iterator[Entry]:
        """New against old; inputs exactly, outputs with the tolerance that was recorded with the old ones."""
        comparator = old.manifest.comparator
        before, after = ({record.name: record for record in case.manifest.tensors} for case in (old, new))
        with Spool(old) as left, Spool(new) as right:
            for name in before | after:
                if name not in before or name not in after:
                    lost = name in before
                    (left if lost else right).verified(name)
                    yield one_sided_row((before if lost else after)[name], lost=lost)
                    continue
                one, other = before[name], after[name]
                exact, large = one.role == "input", max(one.nbytes, other.nbytes) >= _LARGE
                if one.digest == other.digest and not self._everything:
                    # A digest is over dtype, shape and bytes.
                    elements = prod(one.shape) * per_element(one.dtype)
                    numbers = TensorNumbers(elements=elements, bit_equal=elements)
                    comparison = Comparison(name=name, dtype=one.dtype, shape=one.shape, numbers=numbers)
                else:
                    with self._one_large if large else nullcontext():
                        comparison = compare_tensors(
                            name,
                            left.tensor(name),
                            right.tensor(name),
                            rtol=0.0 if exact else comparator.rtol,
                            atol=0.0 if exact else comparator.atol,
                            integers=comparator.integers,
                            # What was NaN and still is has not changed; what became NaN is a mismatch all the same.
                            equal_nan=True,
                            threads=self._threads if large else 1,
                            digests=(one.digest, other.digest),
                        )
                yield input_row(comparison) if exact else output_row(comparison, comparator)


def _programs(old: Case, new: Case, *, everything: bool) -> Iterator[Finding]:
    """Whether the programs are what was captured, and one and the same."""
    before, after = old.manifest.program, new.manifest.program
    if before and after and before.digest == after.digest and not everything:
        return
    for side, case, record in (("old", old, before), ("new", new, after)):
        extent = case.program()
        if record and extent:
            try:
                require_file(extent, record.digest, f"{record.file} of the {side} side")
            except Damaged as damage:
                yield fail("bundle-damaged", str(damage))
    if before and not after:
        yield fail("incomplete-case", "the program is gone: the new capture has none")
    elif after:
        same, extent = before is not None and before.digest == after.digest, new.program()
        if before and extent and hash_of(before.digest) != hash_of(after.digest):
            with suppress(Damaged):  # of two formats, the old side's hash over the new side's bytes
                require_file(extent, before.digest, after.file)
                same = True
        if not same:
            was = f"{before.size:,} bytes" if before else "none"
            yield info("program-changed", f"the program is another file ({was} → {after.size:,} bytes)")


def _change(
    pair: CasePair,
    findings: Sequence[Finding],
    verdict: Verdict = Verdict.UNREADABLE,
    of: Case | None = None,
    **more: Any,
) -> Change:
    """What became of a case, gravest findings first; `of` is the side whose identity it has."""
    placed = [replace(f, path=pair.path) for f in findings]
    found, known = tuple(sorted(placed, key=lambda f: f.severity.rank)), pair.old is not None
    one = of.manifest.identity if of else None
    identity = {"suite": one.suite, "flow": one.flow, "test": one.test} if one else {}
    identity |= {"subtest": one.subtest} if one and one.subtest else {}
    about: dict[str, Any] = {"identity": identity, "has_baseline": known, **more}
    return Change(path=pair.path, verdict=verdict, shape="bundle", findings=found, **about)


def _failing(findings: Iterable[Finding]) -> list[Finding]:
    return [f for f in findings if f.severity is Severity.FAIL]


def output_row(comparison: Comparison, comparator: Comparator) -> Entry:
    """An expected tensor, new against old, with the old side's tolerance."""
    # Where nobody recorded a tolerance, a dtype's own is a guess, and crossing it no proof.
    guessed = comparator.name == "caller" and comparator.rtol is None and comparator.atol is None
    findings = []
    for f in comparison.findings:
        # The metric says which tensor it is, so the place need not say it again.
        found = replace(f, metric=comparison.name, where=None if f.where == comparison.name else f.where)
        if guessed and f.kind == "tensor-mismatch":
            message = f"{f.message}; the capture recorded no tolerance, so the dtype's own was used"
            found = replace(found, severity=Severity.WARN, message=message)
        findings.append(found)
    if _failing(findings):
        verdict = Verdict.BREAK
    elif any(f.severity is Severity.WARN for f in findings):
        verdict = Verdict.DRIFT
    else:
        verdict = Verdict.SAME if _is_bit_equal(comparison) else Verdict.NOISE
    tolerance = comparison.tolerance
    if tolerance is not None and tolerance.origin == "given":
        # It was given to the comparison, but nobody gave it: it was recorded.
        tolerance = replace(tolerance, origin="recorded")
        comparison = replace(comparison, tolerance=tolerance)
    return _row(comparison, verdict, _because(comparison)), tuple(findings)


def input_row(comparison: Comparison) -> Entry:
    """An input; one that changed is no failure of its own, but it is said about the whole case."""
    same = _is_bit_equal(comparison)
    damage = tuple(f for f in comparison.findings if f.kind == "bundle-damaged")
    verdict = Verdict.SAME if same else Verdict.DRIFT
    because = _because(comparison) if same else "the two captures had different inputs"
    return _row(comparison, verdict, because), damage


def one_sided_row(record: TensorRecord, *, lost: bool) -> Entry:
    """A tensor that only the old side has (it is `lost`), or only the new one."""
    name, what = record.name, f"{record.dtype}{list(record.shape)}"
    if lost:
        verdict, because = Verdict.INCOMPLETE, "it is gone"
        finding = fail("lost-tensor", f"{within(name)}expected {what}, found nothing on the new side", metric=name)
    else:
        verdict, because = Verdict.NEW, "the old side has no such tensor"
        message = f"{within(name)}expected no such tensor, found {what}, which is new"
        finding = warn("gained-tensor", message, metric=name)
    tensor = Comparison(name=name, dtype=record.dtype, shape=record.shape)
    row = MetricChange(metric=name, verdict=verdict, because=because, rule="bundle", tensor=tensor)
    return row, (finding,)


def _is_bit_equal(comparison: Comparison) -> bool:
    numbers = comparison.numbers
    if any(f.kind in _BROKEN for f in comparison.findings):
        return False
    return numbers is not None and numbers.bit_equal == numbers.elements


def _because(comparison: Comparison) -> str:
    numbers, tolerance = comparison.numbers, comparison.tolerance
    if numbers is not None and _is_bit_equal(comparison):
        return f"all {numbers.elements:,} elements are bit-equal"
    if numbers is None or tolerance is None:
        return next((f.message for f in comparison.findings), "compared exactly")
    rule = f"rtol {tolerance.rtol:g}, atol {tolerance.atol:g} ({tolerance.origin})"
    if numbers.mismatches:
        return f"{numbers.mismatches:,} of {numbers.elements:,} elements lie outside {rule}"
    return f"{numbers.elements - numbers.bit_equal:,} elements differ, within {rule}"


def _row(comparison: Comparison, verdict: Verdict, because: str) -> MetricChange:
    numbers = comparison.numbers or TensorNumbers(elements=0, bit_equal=0)
    return MetricChange(
        metric=comparison.name,
        verdict=verdict,
        because=because,
        rule="bundle",
        max_abs_rel_diff=numbers.max_rel,
        max_step=place(numbers.max_rel_at),
        first_diff_step=place(numbers.first_mismatch),
        bit_equal=numbers.bit_equal,
        n_shared=numbers.elements,
        nan_gained=max(0, numbers.nan_actual - numbers.nan_expected),
        nan_lost=max(0, numbers.nan_expected - numbers.nan_actual),
        tensor=replace(comparison, findings=()),
    )


def manifest_findings(old: Manifest, new: Manifest, *, inputs_differ: bool) -> Iterator[Finding]:
    """Everything but tensors and programs."""
    if inputs_differ or old.inputs != new.inputs:
        message = "the two captures had different inputs, so a difference of their outputs says little"
        yield warn("inputs-changed", message)
    # A golden that allows more than it did is news, whatever its values do.
    dtypes = sorted({t.dtype for t in new.tensors if t.role == "expected"}) or ["float32"]
    allowed = [(_allowed(old.comparator, d), _allowed(new.comparator, d)) for d in dtypes]
    one, two = next(((a, b) for a, b in allowed if a != b), allowed[0])
    text = f"rtol {one[0]:g}, atol {one[1]:g} → rtol {two[0]:g}, atol {two[1]:g}"
    if any(b > a for sides in allowed for a, b in zip(*sides, strict=True)):
        nan = " and NaN equals NaN now" if two[2] > one[2] else ""
        yield warn("tolerance-widened", f"the capture allows more than it did: {text}{nan}")
    elif one != two:
        yield info("tolerance-tightened", f"the capture allows less than it did: {text}")
    facts = ("platform", "machine", "device", "image", "python")
    pairs = [(name, getattr(old.environment, name), getattr(new.environment, name)) for name in facts]
    before, after = old.environment.packages, new.environment.packages
    pairs += [(name, before.get(name), after.get(name)) for name in sorted(before.keys() | after.keys())]
    differing = [f"{name} {one or 'none'} → {other or 'none'}" for name, one, other in pairs if one != other]
    if differing:
        yield info("environment-changed", f"captured elsewhere: {few(differing, _SHOWN, '; ')}")


def plain_rows(old: Manifest, new: Manifest) -> Iterator[Entry]:
    """Expected values that are no tensors, and the nesting of all of them, where it is not the same."""
    if old.expected == new.expected:
        return
    plain = (_without_tensors(side.expected) for side in (old, new))
    before, after = (Flat(role="expected", structure=structure, tensors={}) for structure in plain)
    names = ("rtol", "atol", "integers", "equal_nan")
    report = compare_values(before, after, **{name: getattr(old.comparator, name) for name in names})
    yield None, tuple(f for f in report.findings if f.kind != "nothing-compared")
    for comparison in report.comparisons:
        if comparison.findings or comparison.numbers is not None:
            yield output_row(comparison, old.comparator)


def _without_tensors(node: Any) -> Any:
    """The structure with a word where a tensor is; tensors are compared by their bytes."""
    if isinstance(node, list):
        return [_without_tensors(item) for item in node]
    if not isinstance(node, dict):
        return node
    if len(node) == 1 and next(iter(node)) in {"tensor", "scalar"}:
        return "a tensor"
    return {key: _without_tensors(value) for key, value in node.items()}


def _allowed(comparator: Comparator, dtype: str) -> tuple[float, float, bool, bool]:
    """What passes: all four grow as more does."""
    own = tolerance_for(dtype, dtype, comparator.rtol, comparator.atol, integers=comparator.integers)
    return own.rtol, own.atol, comparator.equal_nan, not comparator.check_dtype
