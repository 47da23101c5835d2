"""Plain data for JSON: one form for findings in every schema, and no report lost to an odd name."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import msgspec

from karat.findings import Finding, exit_code
from karat.system.command import Command, takes


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
        "next": None if finding.next is None or takes(finding.next) else str(finding.next),
    }


def encode(document: Mapping[str, Any], *, odd_numbers_as_text: bool = False) -> bytes:
    """A document as JSON text. NaN and infinities, which JSON has no word for, become null, or text."""
    try:
        if odd_numbers_as_text:
            document = sayable(document, numbers=True)
        data = msgspec.json.encode(document, enc_hook=_command)
    except UnicodeEncodeError:
        data = msgspec.json.encode(sayable(document), enc_hook=_command)
    return msgspec.json.format(data, indent=2) + b"\n"


def _command(value: object) -> str:
    if not isinstance(value, Command):
        raise NotImplementedError(f"expected plain data, found {value!r:.100}")
    return str(value)


def encode_report(schema: str, report: Any, *, code: int | None = None, **more: Any) -> bytes:
    """A struct that is written as it is, with its findings, the exit code that they deserve unless told, and more fields."""
    plain = msgspec.to_builtins(msgspec.structs.replace(report, findings=()), enc_hook=_command)
    code = int(exit_code(report.findings)) if code is None else int(code)
    found = [finding_json(finding) for finding in report.findings]
    return encode({"schema": schema, "exit_code": code, **plain, **more, "findings": found})


def sayable(value: Any, *, numbers: bool = False) -> Any:
    """The same without the lone surrogates of a file name that is not UTF-8; with `numbers`, NaN and infinities as text."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {sayable(key, numbers=numbers): sayable(item, numbers=numbers) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sayable(item, numbers=numbers) for item in value]
    if numbers and isinstance(value, float) and not isfinite(value):
        return str(value)
    return value
