"""Unusable: why nothing of one artifact can be taken.

Raised wherever it is noticed and turned into a finding in one place, so that one bad artifact never
costs the others.
"""

from __future__ import annotations

from karat.findings import Finding, Severity

DAMAGE = frozenset({"artifact-corrupt", "artifact-truncated", "artifact-not-zip"})
"""Kinds that bytes left by an earlier process may be to blame for."""


class Unusable(Exception):  # noqa: N818 - it is a state of an artifact, not a bug
    """One artifact cannot be used; the kind of finding, and what was expected and found."""

    def __init__(self, kind: str, message: str, *, next_command: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.next_command = next_command

    def finding(self, name: str, next_command: str | None = None) -> Finding:
        """What the person is told of the artifact of that name, and to do next."""
        return Finding(
            kind=self.kind,
            severity=Severity.FAIL,
            message=f"artifact {name}: {self}",
            path=name,
            next=next_command or self.next_command,
        )


def no_room(error: OSError) -> Unusable:
    """The disk here, not the server, is why it cannot be taken."""
    return Unusable(
        "transfer-failed",
        f"expected room on this disk for what arrives, found {error.strerror or error}",
        next_command="df -h",
    )
