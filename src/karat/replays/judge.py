"""Judge a replayed case: which tolerance holds, what became of it, of all of them, and what a person should know.

A tolerance given on the command line overrules the recorded one, and the report says so: a wider one accepts
what the capture would not have accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from karat.bundles.cases import Case, Spool
from karat.bundles.manifest import Identity, Manifest
from karat.findings import UNVERIFIED, ExitCode, Finding, KaratError, Ranked, Severity, exit_code, fail, info, warn
from karat.replays.options import CaseOptions
from karat.report.result import Result
from karat.tensors.comparison import Comparison, Criteria
from karat.tensors.dtypes import tolerance_for
from karat.tensors.tensor import Damaged


class ReplayOutcome(Ranked):
    """What became of a case, worst first."""

    DAMAGED = "damaged"  # Its bytes are not what was captured; it was not run.
    FAILED = "failed"  # The program did not run to its end, or left no outputs.
    MISMATCH = "mismatch"
    NOT_COMPARED = "not-compared"  # It ran, and there was nothing to hold its outputs against.
    MATCH = "match"


class ReplayedCase(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    identity: Identity
    outcome: ReplayOutcome
    comparisons: tuple[Comparison, ...] = ()
    findings: tuple[Finding, ...] = ()  # All of them, those of the comparisons as well.
    seconds: float = 0.0
    work: str | None = None  # The folder it worked in, where it was kept.

    @property
    def severity(self) -> Severity | None:
        return min((f.severity for f in self.findings), key=lambda s: s.rank, default=None)


class ReplayReport(Result, msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was asked for, in the order of the bundle."""

    bundle: str  # As the user typed it.
    runner: str  # `module:function`, or the command.
    cases: tuple[ReplayedCase, ...]
    findings: tuple[Finding, ...] = ()  # About the whole rather than one case.

    def all_findings(self) -> Iterator[Finding]:
        """Every finding, the whole's first, then case by case."""
        yield from self.findings
        for case in self.cases:
            yield from case.findings

    @property
    def exit_code(self) -> ExitCode:
        """1 if anything certainly failed, else 3 if anything could not be verified, else 0."""
        return exit_code(self.all_findings())

    def to_json(self) -> bytes:
        """Schema karat.replay/1."""
        from karat.replays.report import render_json

        return render_json(self)

    def rows(self) -> list[dict[str, Any]]:
        return [
            {
                "case": case.path,
                "outcome": case.outcome.value,
                "values": len(case.comparisons),
                "seconds": round(case.seconds, 3),
                "because": "; ".join(f.message for f in case.findings),
            }
            for case in self.cases
        ]

    def headline(self) -> str:
        return f"{self.bundle} run by {self.runner}: {self.outcomes() or 'no case was run'}"

    def outcomes(self) -> str:
        """`1 mismatch, 3 match`."""
        tally = Counter(case.outcome for case in self.cases)
        return ", ".join(f"{tally[o]:,} {o.value}" for o in ReplayOutcome if tally[o])


def attempted(case: Case, replay: Callable[[], ReplayedCase]) -> ReplayedCase:
    """What a replay comes to, also where the case is damaged or cannot be read."""
    try:
        return replay()
    except Damaged as damage:
        return damaged(case, str(damage))
    except (KaratError, OSError) as error:
        # It could not be read, or there was no room for it: nothing is known about it.
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        said = f"expected to prepare the case, but: {reason}"
        finding = fail("cannot-read", said, next=error.next_command if isinstance(error, KaratError) else "df -h")
        return _finished(case, ReplayOutcome.NOT_COMPARED, finding)


def failed(case: Case, message: str, *others: Finding) -> ReplayedCase:
    """The program did not run, or left nothing that can be compared."""
    return _finished(case, ReplayOutcome.FAILED, fail("replay-failed", message), *others)


def damaged(case: Case, *problems: Finding | str) -> ReplayedCase:
    """Its bytes are not what was captured, so it was not run."""
    findings = (fail("bundle-damaged", p) if isinstance(p, str) else p for p in problems)
    unrun = (replace(f, message=f"{f.message}; the case was not run") for f in findings)
    return _finished(case, ReplayOutcome.DAMAGED, *unrun)


def _finished(case: Case, outcome: ReplayOutcome, *findings: Finding) -> ReplayedCase:
    """A case and its findings, each with its path, the worst first."""
    named = (f if f.path else replace(f, path=case.path) for f in findings)
    found = tuple(sorted(named, key=lambda f: f.severity.rank))
    return ReplayedCase(path=case.path, identity=case.manifest.identity, outcome=outcome, findings=found)


def compared(
    case: Case, options: CaseOptions, comparisons: tuple[Comparison, ...], findings: Iterable[Finding]
) -> ReplayedCase:
    found = tuple(findings)
    replayed = _finished(case, _outcome(comparisons, found), *found)
    recorded = options.rtol is None and options.atol is None
    comparisons = tuple(
        replace(one, tolerance=replace(one.tolerance, origin="recorded"))
        if recorded and one.tolerance is not None and one.tolerance.origin == "given"
        else one
        for one in comparisons
    )
    return replace(replayed, comparisons=comparisons)


def _outcome(comparisons: tuple[Comparison, ...], findings: tuple[Finding, ...]) -> ReplayOutcome:
    if any(f.kind == "bundle-damaged" for f in findings):
        return ReplayOutcome.DAMAGED
    # An output that is missing is a mismatch, also if it is the only one; what is left is no match.
    if any(f.severity is Severity.FAIL and f.kind not in UNVERIFIED for f in findings):
        return ReplayOutcome.MISMATCH
    unknown = not comparisons or any(f.kind in UNVERIFIED for f in findings)
    return ReplayOutcome.NOT_COMPARED if unknown else ReplayOutcome.MATCH


def verify_expected(case: Case) -> None:
    """Check the digest of every expected tensor; `Damaged` names the first that is not what was captured."""
    with Spool(case) as spool:
        for record in case.manifest.tensors:
            if record.role == "expected":
                spool.verified(record.name)


def criteria_of(manifest: Manifest, options: CaseOptions) -> Criteria:
    """How the outputs of a case are compared: as recorded, or as given here."""
    comparator = manifest.comparator
    return {
        "rtol": comparator.rtol if options.rtol is None else options.rtol,
        "atol": comparator.atol if options.atol is None else options.atol,
        "integers": comparator.integers,
        "equal_nan": comparator.equal_nan,
        "check_dtype": comparator.check_dtype,
    }


def tolerance_findings(manifest: Manifest, options: CaseOptions) -> Iterator[Finding]:
    comparator = manifest.comparator
    given = {"rtol": options.rtol, "atol": options.atol}
    words = " and ".join(f"{name} {value:g}" for name, value in given.items() if value is not None)
    dtypes = {record.dtype for record in manifest.tensors if record.role == "expected"} if words else set()
    limits = comparator.rtol, comparator.atol
    own = [tolerance_for(dtype, dtype, *limits, integers=comparator.integers) for dtype in sorted(dtypes)]
    recorded = [(each.rtol, each.atol) for each in own if each.origin != "integers"]
    both = list(given.values())
    wider = [pair for pair in recorded if any(g is not None and not g <= r for g, r in zip(both, pair, strict=True))]
    if wider:
        rtol, atol = wider[0]
        own_words = f"the bundle says rtol {rtol:g}, atol {atol:g}"
        said = f"compared with {words}, while {own_words}: what passes here may not match what was captured"
        yield warn("tolerance-widened", said, next="karat replay --help")
    if comparator.name == "caller" and comparator.rtol is None and comparator.atol is None:
        said = "the test compared by its own means and recorded no tolerance; each dtype's own was used"
        yield info("caller-compared", said)
