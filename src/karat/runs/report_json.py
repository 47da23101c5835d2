"""JSON of this room's reports: one form for findings, and no report lost to an odd file name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from karat.findings import Finding


def finding_data(finding: Finding) -> dict[str, Any]:
    """A finding as every schema of karat has it."""
    return {
        "kind": finding.kind,
        "severity": finding.severity.value,
        "path": finding.path,
        "metric": finding.metric,
        "where": finding.where,
        "message": finding.message,
        "numbers": dict(finding.numbers),
        "next": finding.next,
    }


def encoded(data: Mapping[str, Any]) -> bytes:
    """The JSON text; NaN and infinities become null."""
    try:
        text = msgspec.json.encode(data)
    except UnicodeEncodeError:  # a file name that is not UTF-8 has lone surrogates
        text = msgspec.json.encode(_escaped(data))
    return msgspec.json.format(text, indent=2) + b"\n"


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list | tuple) else value
