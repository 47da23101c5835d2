"""What a test, or a script that captures, may have to catch."""

from __future__ import annotations

from karat.findings import Finding, KaratError
from karat.tensors.outcome import Report


class Mismatch(AssertionError):  # noqa: N818 - a test fails with it, as with any assertion
    """Actual is not what was expected; `report` has all the numbers."""

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report


class CaptureFailed(KaratError):  # noqa: N818 - what happened, as findings are named
    """A case that should have been captured was not; `finding` says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message, next_command=finding.next or "karat --help")
        self.finding = finding


class CaptureWarning(UserWarning):
    """A case was not captured, and nobody asked to be strict about it."""


# Users know them by these names, and tracebacks should say them.
for _public in (Mismatch, CaptureFailed, CaptureWarning):
    _public.__module__ = "karat"
