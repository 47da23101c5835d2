"""Two captured cases → a change: tensor by tensor, in blocks, and never "same" without having read them.

Old is what is expected, with the tolerance that was recorded with it. Digests are looked at in the same
pass, so a damaged side is `unreadable` whatever the other side says.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from karat.bundles.cases import Case
from karat.bundles.index import file_digest
from karat.bundles.manifest import Manifest, TensorRecord
from karat.bundles.spooling import Spool
from karat.bundles.verifying import verify_case
from karat.compare.change import Change, MetricChange, Verdict
from karat.compare.pairs import verdict_of
from karat.diff.bundle_manifests import manifest_findings, plain_rows
from karat.diff.bundle_rows import Entry, gained_row, input_row, lost_row, output_row
from karat.diff.captured import Pair
from karat.findings import CannotVerify, Finding, Severity
from karat.tensors.comparing import compare_tensors
from karat.tensors.digest import digest_of
from karat.tensors.outcome import Comparison
from karat.tensors.tensor import Damaged, TensorExtent

_LARGE = 32 << 20
"""Bytes from which a tensor is worth all threads at once, and then no other runs beside it."""

Progress = Callable[[int, int], None]


def judge_cases(
    pairs: Sequence[Pair], *, jobs: int | None = None, progress: Progress | None = None
) -> list[Change]:
    """The changes of all cases, in order; several at a time."""
    threads = jobs or _cores()
    judge = _Judge(threads)
    changes = []
    with ThreadPoolExecutor(max(1, min(threads, len(pairs)))) as pool:
        for change in pool.map(judge.change, pairs):
            changes.append(change)
            if progress is not None:
                progress(len(changes), len(pairs))
    return changes


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


class _Judge:
    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._one_large = threading.Lock()

    def change(self, pair: Pair) -> Change:
        """The change of one case; damage is a finding of it and of no other."""
        broken = [*pair.out_of_reach]
        broken += [f for case in (pair.old, pair.new) if case for f in case.findings if _grave(f)]
        if broken:
            return _unreadable(pair, broken)
        if pair.new is None:
            return _alone(pair, Verdict.REMOVED, _REMOVED)
        try:
            if pair.old is None:
                damage = [f for f in verify_case(pair.new) if _grave(f)]
                return _unreadable(pair, damage) if damage else _alone(pair, Verdict.NEW, _NEW)
            return self._compared(pair.path, pair.old, pair.new)
        except CannotVerify as error:
            return _unreadable(pair, [_out_of_reach(error)])
        except (Damaged, ValueError) as damage:
            # A manifest may be sealed and still say what no capture would: a tolerance below zero.
            return _unreadable(pair, [_damaged(str(damage))])

    def _compared(self, path: str, old: Case, new: Case) -> Change:
        with Spool(old) as left, Spool(new) as right:
            sides = _Sides(old.manifest, new.manifest, left, right)
            entries = [*self._tensors(sides), *plain_rows(old.manifest, new.manifest)]
        rows = [row for row, _ in entries if row is not None]
        findings = [f for _, found in entries for f in found]
        findings += _programs(old, new)
        findings += manifest_findings(old.manifest, new.manifest, _inputs_differ(rows))
        findings += [f for case in (old, new) for f in case.findings]
        if any(f.kind == "bundle-damaged" for f in findings):
            return _unreadable(Pair(path, old, new), [f for f in findings if _grave(f)])
        if not rows:
            findings.append(_nothing())
        return Change(
            path=path,
            verdict=verdict_of(rows, findings),
            shape="bundle",
            metrics=tuple(rows),
            findings=_sorted(findings, path),
            identity=_identity(new.manifest),
            same_bytes=old.manifest.sha256 == new.manifest.sha256,
        )

    def _tensors(self, sides: _Sides) -> Iterator[Entry]:
        before = {record.name: record for record in sides.old.tensors}
        after = {record.name: record for record in sides.new.tensors}
        for name in [*before, *(name for name in after if name not in before)]:
            if name not in after:
                sides.left.verified(name)
                yield lost_row(before[name])
            elif name not in before:
                sides.right.verified(name)
                yield gained_row(after[name])
            else:
                yield self._tensor(sides, before[name], after[name])

    def _tensor(self, sides: _Sides, before: TensorRecord, after: TensorRecord) -> Entry:
        if max(before.nbytes, after.nbytes) < _LARGE:
            comparison = _comparison(sides, before, after, 1)
        else:
            with self._one_large:
                comparison = _comparison(sides, before, after, self._threads)
        if before.role == "input":
            return input_row(comparison)
        return output_row(comparison, sides.old.comparator)


class _Sides(msgspec.Struct, frozen=True):
    """Two captures of one case, while they are compared."""

    old: Manifest
    new: Manifest
    left: Spool
    right: Spool


def _comparison(
    sides: _Sides, before: TensorRecord, after: TensorRecord, threads: int
) -> Comparison:
    """New against old; inputs exactly, outputs with the tolerance that was recorded with the old ones."""
    comparator, exact = sides.old.comparator, before.role == "input"
    left, right = sides.left.tensor(before.name), sides.right.tensor(after.name)
    with _vouched(left, before, after):
        return compare_tensors(
            before.name,
            left,
            right,
            rtol=0.0 if exact else comparator.rtol,
            atol=0.0 if exact else comparator.atol,
            # What was NaN and still is has not changed; what became NaN is a mismatch all the same.
            equal_nan=True,
            threads=threads,
            digests=(before.sha256, after.sha256),
        )


@contextmanager
def _vouched(left: TensorExtent, before: TensorRecord, after: TensorRecord) -> Iterator[None]:
    """Hashes the old side meanwhile, where both are said to be the same.

    That they are equal is found by comparing bits; whether these are the captured bits is not, since two
    copies of a damaged file are equal, too.
    """
    if before.sha256 != after.sha256:
        yield  # the comparison hashes both
        return
    if before.nbytes < _LARGE:
        yield
        found = digest_of(left)
    else:
        with ThreadPoolExecutor(1) as pool:
            digest = pool.submit(digest_of, left)
            yield
            found = digest.result()
    if found != before.sha256:
        said = f"expected the digest {before.sha256}, found {found}"
        raise Damaged(f"{before.name} of both sides: {said}")


def _inputs_differ(rows: Sequence[MetricChange]) -> bool:
    inputs = (row for row in rows if row.metric.partition("/")[0] == "input")
    return any(row.verdict is not Verdict.SAME for row in inputs)


def _programs(old: Case, new: Case) -> Iterator[Finding]:
    """Whether the programs are what was captured, and one and the same."""
    before, after = old.manifest.program, new.manifest.program
    for side, case, record in (("old", old, before), ("new", new, after)):
        extent = case.program() if record else None
        if record and (extent is None or file_digest(extent) != record.sha256):
            yield _damaged(
                f"{record.file} of the {side} side: expected sha256 {record.sha256}, found another"
            )
    if before and not after:
        message = "the program is gone: the new capture has none"
        yield Finding(kind="incomplete-case", severity=Severity.FAIL, message=message)
    elif after and (before is None or before.sha256 != after.sha256):
        was = f"{before.size:,} bytes" if before else "none"
        message = f"the program is another file ({was} → {after.size:,} bytes)"
        yield Finding(kind="program-changed", severity=Severity.INFO, message=message)


_REMOVED = Finding(
    kind="removed-golden", severity=Severity.FAIL, message="the case is gone from the new side"
)
_NEW = Finding(
    kind="new-golden",
    severity=Severity.INFO,
    message="a new case: there is no old side to compare with",
)


def _alone(pair: Pair, verdict: Verdict, finding: Finding) -> Change:
    case = pair.new or pair.old
    return Change(
        path=pair.path,
        verdict=verdict,
        shape="bundle",
        findings=_sorted([finding], pair.path),
        identity=_identity(case.manifest) if case else {},
        has_baseline=pair.old is not None,
    )


def _unreadable(pair: Pair, findings: Sequence[Finding]) -> Change:
    return Change(
        path=pair.path,
        verdict=Verdict.UNREADABLE,
        shape="bundle",
        findings=_sorted(findings, pair.path),
        has_baseline=pair.old is not None,
    )


def _grave(finding: Finding) -> bool:
    return finding.severity is Severity.FAIL


def _damaged(message: str) -> Finding:
    return Finding(kind="bundle-damaged", severity=Severity.FAIL, message=message)


def _out_of_reach(error: CannotVerify) -> Finding:
    """A store that did not answer says nothing about the case, and must not cost the others."""
    return Finding(
        kind="cannot-read", severity=Severity.FAIL, message=str(error), next=error.next_command
    )


def _nothing() -> Finding:
    message = "neither side holds a tensor or a value, so nothing was compared"
    return Finding(kind="nothing-compared", severity=Severity.FAIL, message=message)


def _identity(manifest: Manifest) -> dict[str, str]:
    identity = manifest.identity
    found = {"suite": identity.suite, "flow": identity.flow, "test": identity.test}
    return found | ({"subtest": identity.subtest} if identity.subtest else {})


def _sorted(findings: Sequence[Finding], path: str) -> tuple[Finding, ...]:
    placed = [replace(f, path=path) for f in findings]
    return tuple(sorted(placed, key=lambda f: f.severity.rank))
