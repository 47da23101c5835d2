"""Judging: one op test class held against the policy, where no pytest plugin does it. The gate's own functions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from karat.config import load
from karat.gradients.session import Event
from karat.policy.evidence import Known, Merged
from karat.policy.exemptions import Exemptions, read
from karat.policy.gate.decision import Asked, gate, lines
from karat.policy.journal import Evidence, NoGradAsked, OpTested, Reported, records_of
from karat.system.dates import day


def unmet(test: str, told: Sequence[Event]) -> str:
    """What the class lacks, with the ways to set it right; empty if it lacks nothing."""
    today = day(None, os.environ)
    merged = Merged(tests={test: _known(test, told)}, ran=1)
    written = _exemptions()
    # What is wrong with the file is for `karat policy gate` to say; here it may explain why nothing covers the class.
    held = gate(merged, Asked(exemptions=Exemptions(entries=written.entries), today=today))
    if held.exit_code == 0:
        return ""
    return "\n".join(lines(gate(merged, Asked(exemptions=written, today=today)), today=today))


def _exemptions() -> Exemptions:
    config = load(Path.cwd())
    root = config.file.parent if config.file else Path.cwd()
    return read(root / config.policy.exemptions, config.policy.exemptions)


def _known(test: str, told: Sequence[Event]) -> Known:
    records = [record for event in told for record in records_of(event, test)]
    return Known(
        test=test,
        declared=tuple(one for one in records if isinstance(one, OpTested)),
        evidence=tuple(one for one in records if isinstance(one, Evidence)),
        reports=tuple(one for one in records if isinstance(one, Reported)),
        no_grads=tuple(one for one in records if isinstance(one, NoGradAsked)),
    )
