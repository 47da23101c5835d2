"""Problems: an error that is a finding, so that reports and exit codes say the same of it."""

from __future__ import annotations

from karat.findings import UNVERIFIED, ExitCode, Finding, KaratError, Severity


class Problem(KaratError):  # noqa: N818 - a state of the store, not a bug
    """What went wrong with a store, as the finding that a report shows."""

    def __init__(self, kind: str, message: str, *, next_command: str, path: str = "") -> None:
        super().__init__(message, next_command=next_command)
        self.exit_code = ExitCode.CANNOT_VERIFY if kind in UNVERIFIED else ExitCode.FAIL
        self.finding = Finding(
            kind=kind, severity=Severity.FAIL, message=message, path=path, next=next_command
        )


def damaged(message: str, *, path: str, next_command: str) -> Problem:
    """Bytes are not what their digest says."""
    return Problem("bundle-damaged", message, next_command=next_command, path=path)
