"""Plain data for JSON: one form for findings in every schema, and no report lost to an odd name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from karat.findings import Finding


def finding_json(finding: Finding) -> dict[str, Any]:
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


def encode(document: Mapping[str, Any]) -> bytes:
    """A document as JSON text. NaN and infinities, which JSON has no word for, become null."""
    try:
        data = msgspec.json.encode(document)
    except UnicodeEncodeError:
        # A file name that is not UTF-8 arrives with lone surrogates, which JSON text cannot carry.
        data = msgspec.json.encode(_escaped(document))
    return msgspec.json.format(data, indent=2) + b"\n"


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list | tuple) else value
