"""The summary of a session: how many cases were captured, what was not and why, and the next command."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from karat.captures.journal import Entry
from karat.findings import Finding, Severity

_SHOWN = 20


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A session in numbers and findings."""

    captured: int
    size: int
    dropped: int
    failed: int
    twice: int
    left: Mapping[str, int]
    """Suite that `[bundles] capture` does not name → its checks."""
    findings: tuple[Finding, ...]

    def is_failure(self, *, strict: bool) -> bool:
        """Two captures of one identity always; a case that was not written where that is strict."""
        return bool(self.twice or (strict and self.failed))

    def lines(self, directory: Path, *, strict: bool) -> Iterator[str]:
        """The summary, gravest finding first."""
        yield f"{_cases(self.captured)} captured into {directory} ({_megabytes(self.size)}){self._rest()}"
        loud = sorted(
            (f for f in self.findings if f.severity != Severity.INFO),
            key=lambda finding: (finding.severity.rank, finding.kind),
        )
        for finding in loud[:_SHOWN]:
            yield f"{finding.severity.value} {finding.kind}: {finding.message}"
            if finding.next:
                yield f"     next: {finding.next}"
        if len(loud) > _SHOWN:
            yield f"… and {len(loud) - _SHOWN} more findings, all in {directory}/.karat"
        yield from _quiet(f for f in self.findings if f.severity == Severity.INFO)
        if self.left:
            suites = ", ".join(f"{suite} ({count:,})" for suite, count in sorted(self.left.items()))
            yield f"Not captured, because [bundles] capture does not name the suite: {suites}"
        if self.failed and not self.is_failure(strict=strict):
            yield "The session is not failed for it; --karat-strict would (default where CI is set)."
        if self.captured:
            yield f"Next: karat pack {shlex.quote(str(directory))}"
        elif not self.findings and not self.left:
            yield "No test that passed used the fixture golden."

    def _rest(self) -> str:
        words = [
            f"{self.failed} failed" if self.failed else "",
            f"{self.twice} captured twice" if self.twice else "",
            f"{self.dropped} dropped with their tests" if self.dropped else "",
        ]
        return "".join(f", {word}" for word in words if word)


def tell(entries: Sequence[Entry]) -> Told:
    """The journal's lines, added up; a case that was staged and never settled died with its worker."""
    settled = {(e.worker, e.case) for e in entries if e.case and e.event != "note"}
    staged = {(e.worker, e.number) for e in entries if e.event == "staged"}
    dropped = {(e.worker, e.case) for e in entries if e.event == "dropped"}
    # Nobody misses what a test would have left that did not pass.
    valid = [e for e in entries if not {(e.worker, e.number), (e.worker, e.case)} & dropped]
    captured = [entry for entry in valid if entry.event == "captured"]
    notes = (entry.finding() for entry in valid)
    return Told(
        captured=len(captured),
        size=sum(entry.size for entry in captured),
        dropped=len(dropped) + len(staged - settled),
        failed=sum(entry.event == "failed" for entry in valid),
        twice=sum(entry.event == "twice" for entry in valid),
        left=Counter(entry.path for entry in entries if entry.event == "left"),
        findings=tuple(finding for finding in notes if finding is not None),
    )


def _quiet(findings: Iterable[Finding]) -> Iterator[str]:
    """One line per kind: nobody reads the same sentence for every test."""
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    for kind, found in sorted(kinds.items()):
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        yield f"info {kind}: {found[0].message}{more}"


def _cases(count: int) -> str:
    return f"{count:,} case{'' if count == 1 else 's'}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size / 1e3:,.1f} kB"
