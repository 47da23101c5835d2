"""SARIF 2.1.0 of a scan, as GitHub's code scanning and other viewers read it."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from karat.findings import Finding, Severity
from karat.policy.scan.report import HELP, ScanReport, line_of, title
from karat.report.json import encode

_LEVELS = {Severity.FAIL: "error", Severity.WARN: "warning", Severity.INFO: "note"}
_MOST = 25_000
"""Results that GitHub takes of one run; with more it refuses all."""
_PLACES = re.compile(r":\d+|\bline \d+|[^\s(]*/")


def render(report: ScanReport, version: str) -> bytes:
    """The report as a SARIF log with one run; paths are relative to the current folder where they can be."""
    shown = list(report.findings[:_MOST])  # gravest first
    kinds = sorted({finding.kind for finding in shown})
    run = {
        "tool": {
            "driver": {
                "name": "karat policy scan",
                "version": version,
                "semanticVersion": version,
                "rules": [_rule(kind, shown) for kind in kinds],
            }
        },
        "columnKind": "utf16CodeUnits",
        "originalUriBaseIds": {
            "SRCROOT": {"description": {"text": "The folder in which karat ran."}}
        },
        "invocations": [_invocation(report, len(shown))],
        "results": _results(shown, kinds),
        "properties": {"states": dict(report.states), "files": report.files},
    }
    return encode(
        {
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [run],
        }
    )


def _invocation(report: ScanReport, shown: int) -> dict[str, Any]:
    told: dict[str, Any] = {
        "executionSuccessful": int(report.exit_code) != 3,
        "exitCode": int(report.exit_code),
    }
    if shown < len(report.findings):
        text = f"{len(report.findings) - shown:,} more findings are left out: viewers refuse more than {_MOST:,}"
        told["toolExecutionNotifications"] = [{"level": "warning", "message": {"text": text}}]
    return told


def _rule(kind: str, findings: Sequence[Finding]) -> dict[str, Any]:
    gravest = min((f.severity for f in findings if f.kind == kind), key=lambda s: s.rank)
    advice = HELP.get(kind, title(kind))
    return {
        "id": kind,
        "name": "".join(part.capitalize() for part in kind.split("-")),
        "shortDescription": {"text": title(kind)},
        "fullDescription": {"text": f"{title(kind).capitalize()}."},
        "help": {"text": advice, "markdown": advice},
        "defaultConfiguration": {"level": _LEVELS[gravest]},
        "properties": {"tags": ["gradients", "tests"], "precision": "high"},
    }


def _results(findings: Sequence[Finding], kinds: Sequence[str]) -> list[dict[str, Any]]:
    seen: Counter[str] = Counter()
    results = []
    for finding in findings:
        print_ = fingerprint(finding)
        seen[print_] += 1
        results.append(
            {
                "ruleId": finding.kind,
                "ruleIndex": kinds.index(finding.kind),
                "level": _LEVELS[finding.severity],
                "message": {"text": finding.message},
                "locations": [_location(finding)],
                "partialFingerprints": {"karatFinding/v1": f"{print_}:{seen[print_]}"},
            }
        )
    return results


def fingerprint(finding: Finding) -> str:
    """The same for the same finding wherever its lines have moved to."""
    said = _PLACES.sub("", finding.message)
    parts = (finding.kind, _uri(finding.path)[0], str(finding.numbers.get("class", "")), said)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _location(finding: Finding) -> dict[str, Any]:
    uri, relative = _uri(finding.path)
    artifact = {"uri": uri, "uriBaseId": "SRCROOT"} if relative else {"uri": uri}
    place: dict[str, Any] = {"artifactLocation": artifact}
    # GitHub shows nothing without a line.
    place["region"] = {"startLine": max(line_of(finding), 1)}
    name = finding.numbers.get("class")
    if not name:
        return {"physicalLocation": place}
    return {
        "physicalLocation": place,
        "logicalLocations": [{"fullyQualifiedName": str(name), "kind": "type"}],
    }


def _uri(path: str) -> tuple[str, bool]:
    """A URI reference, and whether it is relative to where karat ran."""
    here = os.path.relpath(path) if os.path.isabs(path) else os.path.normpath(path)  # noqa: PTH117
    if here.startswith(".."):
        whole = os.path.abspath(path)  # noqa: PTH100
        return f"file://{_quoted(whole)}", False
    return _quoted(here), True


def _quoted(path: str) -> str:
    return quote(os.fsencode(path.replace(os.sep, "/")), safe="/~!$&'()*+,;=@")
