"""GitHub Actions: annotations beside the code, and the summary of a step.

A step may make ten errors and ten warnings, and a summary of 1 MiB; what is over is counted here instead of silently
dropped by the server.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from karat.findings import CannotVerify, Finding, Severity
from karat.report.markdown import code, fit_bytes, prose
from karat.report.words import cut, printable
from karat.system.command import Command

MOST_ANNOTATIONS = 10
LARGEST_SUMMARY = 1 << 20
_LONGEST_MESSAGE = 4000
_COMMANDS = {Severity.FAIL: "error", Severity.WARN: "warning"}


def workflow_commands(findings: Iterable[Finding], verb: str) -> str:
    """Workflow commands, one line each; what does not fit is counted in the last of its kind."""
    found: list[str] = []
    everything = list(findings)
    for severity, word in _COMMANDS.items():
        mine = [finding for finding in everything if finding.severity is severity]
        room = len(mine) if len(mine) <= MOST_ANNOTATIONS else MOST_ANNOTATIONS - 1
        for finding in mine[:room]:
            message = finding.message if not finding.next else f"{finding.message}\nnext: {finding.next}"
            line = str(finding.numbers.get("line") or "")
            properties = {"file": finding.path, "line": line, "title": f"{verb}: {finding.kind}"}
            words = ",".join(f"{key}={_property(value)}" for key, value in properties.items() if value)
            found.append(f"::{word} {words}::{_message(message)}")
        if len(mine) > room:
            rest = f"… and {len(mine) - room:,} more {word}s; the log of this step names them all"
            found.append(f"::{word} title={_property(verb)}::{_message(rest)}")
    return "".join(f"{line}\n" for line in found)


def add_step_summary(text: Callable[[int], str]) -> bool:
    """Add to the step's summary what `text` makes of the bytes that are left; False where no summary is asked for."""
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if not target:
        return False
    path = Path(target)
    try:
        taken = path.stat().st_size if path.exists() else 0
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text(LARGEST_SUMMARY - taken))
    except OSError as error:
        raise CannotVerify(
            f"expected to write the step summary {target}, but: {error.strerror or error}",
            next_command=Command("ls", "-ld", str(path.parent)),
        ) from error
    return True


def findings_summary(headline: str, findings: Iterable[Finding], room: int) -> str:
    """The summary of a step, as Markdown of at most `room` bytes: the answer, and a line for each finding."""
    lines = []
    for finding in findings:
        where = f" {code(finding.path)}:" if finding.path else ""
        said = prose(finding.message, _LONGEST_MESSAGE)
        lines.append(f"- **{finding.severity.value}** {finding.kind}{where} {said}\n")
    return fit_bytes(f"## {prose(headline, _LONGEST_MESSAGE)}\n\n", lines, room, "finding")


def _message(text: str) -> str:
    shown = "\n".join(printable(line) for line in cut(text, _LONGEST_MESSAGE).split("\n"))
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
