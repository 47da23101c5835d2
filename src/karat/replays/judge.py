"""Placing findings: each says which case it is of, and the gravest comes first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec
from msgspec import structs

from karat.bundles.cases import Case, Spool
from karat.bundles.manifest import Manifest
from karat.findings import Finding, KaratError, Severity
from karat.replays.options import Judging
from karat.replays.outcome import Outcome, Replayed
from karat.tensors.comparison import Comparison, Tolerance
from karat.tensors.dtypes import for_dtype


def placed(findings: Iterable[Finding], path: str) -> tuple[Finding, ...]:
    """The findings of one case; a comparison that compared nothing is none."""
    named = (f if f.path else replace(f, path=path) for f in findings)
    return tuple(sorted(named, key=lambda f: f.severity.rank))


def nothing_compared(path: str, why: str) -> Finding:
    """Running without comparing must not look like a match."""
    return Finding(
        kind="nothing-compared",
        severity=Severity.FAIL,
        path=path,
        message=f"the program ran, but {why}, so nothing was compared",
        next="karat replay --help",
    )


# DOC-HERE telling: Telling what became of a case that did not get as far as a comparison.


def failed(case: Case, message: str, *others: Finding) -> Replayed:
    """The program did not run, or left nothing that can be compared."""
    finding = Finding(
        kind="replay-failed",
        severity=Severity.FAIL,
        path=case.path,
        message=message,
    )
    return Replayed(
        path=case.path,
        identity=case.manifest.identity,
        outcome=Outcome.FAILED,
        findings=(finding, *others),
    )


def out_of_reach(case: Case, error: KaratError | OSError) -> Replayed:
    """It could not be read, or there was no room for it: nothing is known about it."""
    said = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    finding = Finding(
        kind="cannot-read",
        severity=Severity.FAIL,
        path=case.path,
        message=f"expected to prepare the case, but: {said}",
        next=error.next_command if isinstance(error, KaratError) else "df -h",
    )
    return Replayed(
        path=case.path,
        identity=case.manifest.identity,
        outcome=Outcome.NOT_COMPARED,
        findings=(finding,),
    )


def damaged(case: Case, message: str) -> Replayed:
    """Its bytes are not what was captured, so it was not run."""
    finding = Finding(
        kind="bundle-damaged",
        severity=Severity.FAIL,
        path=case.path,
        message=f"{message}; the case was not run",
    )
    return Replayed(
        path=case.path,
        identity=case.manifest.identity,
        outcome=Outcome.DAMAGED,
        findings=(finding,),
    )


# DOC-HERE verifying: Verifying what a case expects before it is run: a damaged case is never run.


def verify_expected(case: Case) -> None:
    """Looks at the digest of every expected tensor; `Damaged` says which is not what was captured."""
    with Spool(case) as spool:
        for record in case.manifest.tensors:
            if record.role == "expected":
                spool.verified(record.name)


# DOC-HERE judging: Judging a replayed case: which tolerance holds, and what is said about it.
#
# A tolerance given on the command line overrules the recorded one, and never in silence: a wider one lets
# pass what the capture would not have let pass.


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """What outputs are held against; None for the dtype's own tolerance."""

    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_dtype: bool
    findings: tuple[Finding, ...] = ()


def measure_of(manifest: Manifest, judging: Judging, path: str) -> Measure:
    """The tolerance of a case, and what a person should know about it."""
    comparator = manifest.comparator
    return Measure(
        rtol=comparator.rtol if judging.rtol is None else judging.rtol,
        atol=comparator.atol if judging.atol is None else judging.atol,
        equal_nan=comparator.equal_nan,
        check_dtype=comparator.check_dtype,
        findings=(*_overruled(manifest, judging, path), *_caller_compared(manifest, path)),
    )


def _overruled(manifest: Manifest, judging: Judging, path: str) -> Iterator[Finding]:
    if judging.rtol is None and judging.atol is None:
        return
    recorded = [recorded_tolerance(manifest, dtype) for dtype in _dtypes(manifest)]
    wider = [t for t in recorded if _above(judging.rtol, t.rtol) or _above(judging.atol, t.atol)]
    given = " and ".join(
        f"{name} {value:g}"
        for name, value in (("rtol", judging.rtol), ("atol", judging.atol))
        if value is not None
    )
    if wider:
        said = f"the bundle says rtol {wider[0].rtol:g}, atol {wider[0].atol:g}"
        yield Finding(
            kind="tolerance-widened",
            severity=Severity.WARN,
            path=path,
            message=f"judged with {given}, and {said}: what passes here may not match what was captured",
            next="karat replay --help",
        )
    elif recorded:
        yield Finding(
            kind="tolerance-tightened",
            severity=Severity.INFO,
            path=path,
            message=f"judged with {given}, which allows no more than the bundle does",
        )


def _above(given: float | None, recorded: float) -> bool:
    return given is not None and not given <= recorded


def _dtypes(manifest: Manifest) -> list[str]:
    return sorted({tensor.dtype for tensor in manifest.tensors if tensor.role == "expected"})


def recorded_tolerance(manifest: Manifest, dtype: str) -> Tolerance:
    """What the capture allowed for a tensor of this dtype."""
    comparator, own = manifest.comparator, for_dtype(dtype)
    return Tolerance(
        rtol=own.rtol if comparator.rtol is None else comparator.rtol,
        atol=own.atol if comparator.atol is None else comparator.atol,
        equal_nan=comparator.equal_nan,
        origin="recorded",
    )


def with_origin(comparison: Comparison, judging: Judging) -> Comparison:
    """The comparison, with a tolerance that says whether it was recorded or given here."""
    tolerance = comparison.tolerance
    here = judging.rtol is not None or judging.atol is not None
    if tolerance is None or tolerance.origin != "given" or here:
        return comparison
    return structs.replace(comparison, tolerance=structs.replace(tolerance, origin="recorded"))


def _caller_compared(manifest: Manifest, path: str) -> Iterator[Finding]:
    comparator = manifest.comparator
    if comparator.name == "caller" and comparator.rtol is None and comparator.atol is None:
        yield Finding(
            kind="caller-compared",
            severity=Severity.INFO,
            path=path,
            message="the test compared by its own means and recorded no tolerance; each dtype's own was used",
        )
