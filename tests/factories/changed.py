"""Changes of a range of policies, and what was found beside them."""

from __future__ import annotations

from factories.policy_ranges import PolicyRange
from karat.findings import Finding
from karat.policy.approvals.request import Options, Sides
from karat.policy.approvals.waivers import PolicyChange

FILE = "tests/test_ops.py"


def look(tree: PolicyRange, base: str = "main") -> tuple[list[PolicyChange], list[Finding]]:
    tree.commit()
    found = Sides(tree.root, Options(base=base)).changes()
    return list(found.changes), list(found.findings)


def one(tree: PolicyRange) -> PolicyChange:
    changes, findings = look(tree)
    assert findings == []
    (change,) = changes
    return change
