"""Judge a replayed case: which tolerance holds, what became of it, and what a person should know.

A tolerance given on the command line overrules the recorded one, and the report says so: a wider one accepts
what the capture would not have accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from karat.bundles.cases import Case, Spool
from karat.bundles.manifest import Manifest
from karat.findings import UNVERIFIED, Finding, KaratError, Severity, fail, info, warn
from karat.replays.options import CaseOptions
from karat.replays.outcome import ReplayedCase, ReplayOutcome
from karat.tensors.comparison import Comparison, Criteria
from karat.tensors.dtypes import for_dtype


def failed(case: Case, message: str, *others: Finding) -> ReplayedCase:
    """The program did not run, or left nothing that can be compared."""
    return _finished(case, ReplayOutcome.FAILED, fail("replay-failed", message), *others)


def unreadable(case: Case, error: KaratError | OSError) -> ReplayedCase:
    """It could not be read, or there was no room for it: nothing is known about it."""
    reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    said = f"expected to prepare the case, but: {reason}"
    finding = fail("cannot-read", said, next=error.next_command if isinstance(error, KaratError) else "df -h")
    return _finished(case, ReplayOutcome.NOT_COMPARED, finding)


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
    if options.rtol is None and options.atol is None:
        comparisons = tuple(map(_as_recorded, comparisons))
    return replace(replayed, comparisons=comparisons)


def _outcome(comparisons: tuple[Comparison, ...], findings: tuple[Finding, ...]) -> ReplayOutcome:
    if any(f.kind == "bundle-damaged" for f in findings):
        return ReplayOutcome.DAMAGED
    # An output that is missing is a mismatch, also if it is the only one; what is left is no match.
    if any(f.severity is Severity.FAIL and f.kind not in UNVERIFIED for f in findings):
        return ReplayOutcome.MISMATCH
    unknown = not comparisons or any(f.kind in UNVERIFIED for f in findings)
    return ReplayOutcome.NOT_COMPARED if unknown else ReplayOutcome.MATCH


def _as_recorded(comparison: Comparison) -> Comparison:
    tolerance = comparison.tolerance
    if tolerance is None or tolerance.origin != "given":
        return comparison
    return replace(comparison, tolerance=replace(tolerance, origin="recorded"))


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
        "equal_nan": comparator.equal_nan,
        "check_dtype": comparator.check_dtype,
    }


def tolerance_findings(manifest: Manifest, options: CaseOptions) -> Iterator[Finding]:
    comparator = manifest.comparator
    given = {"rtol": options.rtol, "atol": options.atol}
    words = " and ".join(f"{name} {value:g}" for name, value in given.items() if value is not None)
    dtypes = {record.dtype for record in manifest.tensors if record.role == "expected"} if words else set()
    own = [for_dtype(dtype) for dtype in sorted(dtypes)]
    rtols = [each.rtol if comparator.rtol is None else comparator.rtol for each in own]
    atols = [each.atol if comparator.atol is None else comparator.atol for each in own]
    recorded = list(zip(rtols, atols, strict=True))
    both = list(given.values())
    wider = [pair for pair in recorded if any(g is not None and not g <= r for g, r in zip(both, pair, strict=True))]
    if wider:
        rtol, atol = wider[0]
        own_words = f"the bundle says rtol {rtol:g}, atol {atol:g}"
        said = f"compared with {words}, while {own_words}: what passes here may not match what was captured"
        yield warn("tolerance-widened", said, next="karat replay --help")
    elif words and recorded:
        yield info("tolerance-tightened", f"compared with {words}, which allows no more than the bundle does")
    if comparator.name == "caller" and comparator.rtol is None and comparator.atol is None:
        said = "the test compared by its own means and recorded no tolerance; each dtype's own was used"
        yield info("caller-compared", said)
