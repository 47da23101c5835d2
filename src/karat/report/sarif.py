"""SARIF 2.1.0 of findings in source files, as GitHub's code scanning and other viewers read it."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from karat.findings import KINDS, Finding, Severity
from karat.report.json import encode
from karat.report.words import line_of

_LEVELS = {Severity.FAIL: "error", Severity.WARN: "warning", Severity.INFO: "note"}
_MOST = 25_000  # Results that GitHub takes of one run; with more it refuses all.
_PLACES = re.compile(r":\d+|\bline \d+|[^\s(]*/")


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """Who found it."""

    name: str
    version: str
    tags: Sequence[str] = ()
    titles: Mapping[str, str] = {}
    """Kind of finding → what it is, where `findings.KINDS` has no words that fit a source file."""
    help: Mapping[str, str] = {}  # Kind of finding → what to do about it.


def render(findings: Sequence[Finding], tool: Tool, *, exit_code: int, properties: Mapping[str, Any]) -> bytes:
    """Findings, gravest first, as a SARIF log with one run; paths are relative to the current folder where they can be."""
    shown = list(findings[:_MOST])
    kinds = sorted({finding.kind for finding in shown})
    invocation: dict[str, Any] = {"executionSuccessful": exit_code != 3, "exitCode": exit_code}
    if len(shown) < len(findings):
        text = f"{len(findings) - len(shown):,} more findings are left out: viewers refuse more than {_MOST:,}"
        invocation["toolExecutionNotifications"] = [{"level": "warning", "message": {"text": text}}]
    seen: Counter[str] = Counter()
    results: list[dict[str, Any]] = []
    for finding in shown:
        print_ = fingerprint(finding)
        seen[print_] += 1
        uri, relative = _uri(finding.path)
        location: dict[str, Any] = {
            "physicalLocation": {
                "artifactLocation": {"uri": uri, "uriBaseId": "SRCROOT"} if relative else {"uri": uri},
                # GitHub shows nothing without a line.
                "region": {"startLine": max(line_of(finding), 1)},
            }
        }
        if name := finding.numbers.get("class"):
            location["logicalLocations"] = [{"fullyQualifiedName": str(name), "kind": "type"}]
        results.append(
            {
                "ruleId": finding.kind,
                "ruleIndex": kinds.index(finding.kind),
                "level": _LEVELS[finding.severity],
                # A message may hold links, and a name must not be one.
                "message": {"text": finding.message.replace("](", "\\](")},
                "locations": [location],
                "partialFingerprints": {"karatFinding/v1": f"{print_}:{seen[print_]}"},
            }
        )
    run = {
        "tool": {
            "driver": {
                "name": tool.name,
                "version": tool.version,
                "semanticVersion": tool.version,
                "rules": [_rule(kind, shown, tool) for kind in kinds],
            }
        },
        "columnKind": "utf16CodeUnits",
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": "The folder in which karat ran."}}},
        "invocations": [invocation],
        "results": results,
        "properties": properties,
    }
    return encode({"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]})


def _rule(kind: str, findings: Sequence[Finding], tool: Tool) -> dict[str, Any]:
    gravest = min((f.severity for f in findings if f.kind == kind), key=lambda s: s.rank)
    title = tool.titles.get(kind) or KINDS[kind].meaning
    advice = tool.help.get(kind, title)
    return {
        "id": kind,
        "name": "".join(part.capitalize() for part in kind.split("-")),
        "shortDescription": {"text": title},
        "fullDescription": {"text": f"{title.capitalize()}."},
        "help": {"text": advice, "markdown": advice},
        "defaultConfiguration": {"level": _LEVELS[gravest]},
        "properties": {"tags": list(tool.tags), "precision": "high"},
    }


def fingerprint(finding: Finding) -> str:
    """The same for the same finding wherever its lines have moved to."""
    message = _PLACES.sub("", finding.message)
    parts = (finding.kind, _uri(finding.path)[0], str(finding.numbers.get("class", "")), message)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _uri(path: str) -> tuple[str, bool]:
    """A URI reference, and whether it is relative to where karat ran."""
    here = os.path.relpath(path) if os.path.isabs(path) else os.path.normpath(path)  # noqa: PTH117
    if here.startswith(".."):
        return f"file://{_quoted(os.path.abspath(path))}", False  # noqa: PTH100
    return _quoted(here), True


def _quoted(path: str) -> str:
    return quote(os.fsencode(path.replace(os.sep, "/")), safe="/~!$&'()*+,;=@")
