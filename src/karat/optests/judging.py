"""Judging: one op test class held against the policy, where no pytest plugin does it. The gate's own functions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from karat.gradients.events import Declared, Event
from karat.policy.exemptions import read
from karat.policy.gate_needs import needs_of
from karat.policy.merging import Known
from karat.policy.messages import whole
from karat.policy.recording import records_of
from karat.policy.records import Evidence, NoGradAsked, OpTested, Reported


def unmet(test: str, told: Sequence[Event]) -> str:
    """What the class lacks, with the ways to set it right; empty if it lacks nothing."""
    known = _known(test, told)
    entries = [
        one
        for one in read(Path("exemptions.toml")).entries
        if not one.has_expired(date.today())  # noqa: DTZ011 - the day where the person is
    ]
    reasons = [one.skip_reason for one in told if isinstance(one, Declared) and one.skip_reason]
    for op in known.ops:
        lacking = [one for one in needs_of(known, op, (), entries) if not one.is_met]
        if lacking:
            why = "; ".join(dict.fromkeys(one.why for one in lacking if one.why))
            names = [one.input for one in lacking]
            return whole(test, op, names, why=why, reason=next(iter(reasons), ""))
    return ""


def _known(test: str, told: Sequence[Event]) -> Known:
    records = [record for event in told for record in records_of(event, test)]
    return Known(
        test=test,
        declared=tuple(one for one in records if isinstance(one, OpTested)),
        evidence=tuple(one for one in records if isinstance(one, Evidence)),
        reports=tuple(one for one in records if isinstance(one, Reported)),
        no_grads=tuple(one for one in records if isinstance(one, NoGradAsked)),
    )
