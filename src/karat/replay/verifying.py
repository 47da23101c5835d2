"""Verifying what a case expects before it is run: a damaged case is never run."""

from __future__ import annotations

from karat.bundles.cases import Case
from karat.bundles.spooling import Spool


def verify_expected(case: Case) -> None:
    """Looks at the digest of every expected tensor; `Damaged` says which is not what was captured."""
    with Spool(case) as spool:
        for record in case.manifest.tensors:
            if record.role == "expected":
                spool.verified(record.name)
