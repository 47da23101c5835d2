"""The baseline: operators that are known to lack evidence. The list may get shorter, and longer only by hand.

A new operator without evidence fails; so does a listed one that has evidence now, or that is gone, until the list
is shortened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

import msgspec

from karat.findings import Finding, UsageError, fail
from karat.gradients.report import GradVerdict
from karat.policy.evidence import Merged
from karat.policy.exemptions import ByOp
from karat.policy.gate.exemptions import allowed_by, widened_in
from karat.policy.gate.needs import DOUBLE, is_of_backward, small_ops, unasked_outputs
from karat.report.baseline import BaselineFile
from karat.report.words import few
from karat.system.command import Command

FILE = BaselineFile("karat.policy-baseline/1", "operators")
parse, read = FILE.parse, FILE.read


class OpBaseline(msgspec.Struct, frozen=True, kw_only=True):
    """The operators of the registered namespaces, and the list of those that lack evidence."""

    ops: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Operator → its other names, under any of which it may be tested."""
    functions: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Operator → the names of its function, and of those of its own package that it is made of."""
    listed: tuple[str, ...] = ()
    sure: bool = True  # Whether all namespaces could be imported; what is not found in the others need not be gone.
    root: Path = Path()
    path: str = "policy-baseline.json"  # Seen from the root.
    again: Command = Command("karat", "policy", "gate", "--complete")  # The command as it was typed, for advice.

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.ops, *chain.from_iterable(self.ops.values()))


def write(path: Path, added: Iterable[str], gone: Iterable[str]) -> None:
    """Puts operators on a baseline and takes others off; all others stay as they are at that moment."""
    from karat.goldens.saves import update

    update(path, lambda there: FILE.merged(there, path.name, added, gone))


def with_evidence(merged: Merged, active: ByOp) -> frozenset[str]:
    """Names of operators with evidence in float64 that nothing speaks against."""
    wrong = {e.op for known in merged.tests.values() for e in known.evidence if e.verdict is GradVerdict.FAIL}
    wrong |= small_ops(merged.tests.values())
    partial = {one.op for known in merged.tests.values() for one in known.reports if one.unasked}
    wrong |= {op for op in partial if unasked_outputs(merged.tests.values(), op)}
    proved: set[str] = set()
    for known in merged.tests.values():
        wide = widened_in(known)
        loose = {one.op for one in wide if not any(allowed_by(entry, one) for entry in active.about(one.op))}
        good = (e for e in known.evidence if e.counts and e.dtype in DOUBLE and is_of_backward(e))
        proved |= {e.op for e in good} - loose
    return frozenset(proved - wrong)


def is_among(op: str, names: frozenset[str]) -> bool:
    """Whether an operator is named, by its full name or the end of it: `mylib.ops.softmax`, `softmax`."""
    return any(end in names for end in _ends(op))


def _ends(op: str) -> list[str]:
    parts = op.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]


def judge_ops(
    merged: Merged, active: ByOp, held: OpBaseline, *, complete: bool, wrong: Iterable[str] = ()
) -> Iterator[Finding]:
    """New operators without evidence, and stale entries of the list.

    `wrong` names the operators whose gradient is known to be wrong: they have been tested, and that is reported.
    """
    proved = with_evidence(merged, active)
    reached: dict[str, set[str]] = {}
    for report in (one for known in merged.tests.values() for one in known.reports if one.verdict.holds):
        reached.setdefault(report.op, set()).update(report.functions)
    listed, there = set(held.listed), set(held.ops)
    tested = proved.union(wrong)
    for op in held.listed:
        if is_among(op, proved):
            why = "it has gradient evidence now"
        elif complete and held.sure and there and op not in there:
            why = "it is gone"
        else:
            continue
        yield fail(
            "baseline-stale",
            f"{held.path}: {op} is listed as lacking evidence, but {why}; shorten the list",
            path=held.path,
            metric=op,
            next=held.again.plus("--update-baseline"),
        )
    for op, others in held.ops.items() if complete else ():
        names = (op, *others)
        exempt = any(entry.covers("gradient", name) for name in names for entry in active.about(name))
        if op in listed or exempt:
            continue
        short = op.rpartition(".")[2]
        said = f"an operator without gradient evidence in float64; test it with karat.OpTest, OpSpec or karat.gradcheck(op={short!r})"
        checked = {one for name in names for end in _ends(name) for one in reached.get(end, ())}
        other = bool(checked) and checked.isdisjoint(held.functions.get(op, checked))
        if other:
            said = f"what was checked under its name is another function ({few(sorted(checked), 3)}); check the operator itself"
        if other or not any(is_among(name, tested) for name in names):
            yield fail(
                "new-op",
                f"{op}: {said}",
                metric=op,
                next=f"{held.again.plus('--add-to-baseline', op)}  # if it must wait",
            )


def additions(held: OpBaseline, patterns: Sequence[str], lacking: Sequence[str]) -> tuple[str, ...]:
    """Operators without evidence that a pattern means; a pattern that means none is a mistake."""
    found: list[str] = []
    for pattern in patterns:
        mine = [op for op in lacking if fnmatchcase(op, pattern)]
        if not mine:
            there = f"{len(held.ops):,} operators, {len(lacking):,} of them without evidence"
            raise UsageError(
                f"expected --add-to-baseline {pattern!r} to name operators without evidence, found none among {there}",
                next_command=held.again,
            )
        found += mine
    return tuple(found)
