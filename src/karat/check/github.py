"""GitHub Actions: annotations beside the code, and the summary of the step.

A step may make ten error and ten warning annotations, and its summary may have 1 MiB; what is over is
counted instead of silently dropped by the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from karat.check.report import Checked, Report
from karat.check.sentences import headline
from karat.compare.gate_result import Outcome
from karat.findings import Finding, Severity
from karat.report.words import count, printable

MOST_ANNOTATIONS = 10
LARGEST_SUMMARY = 1 << 20
_ROOM = 1 << 10
_LONGEST_MESSAGE = 4000
_BACKTICKS = re.compile("`+")
_MARKS = re.compile(r"[\\`*_\[\]<>|#~&@]")
_COMMANDS = {Severity.FAIL: "error", Severity.WARN: "warning"}


def workflow_commands(report: Report) -> str:
    """Workflow commands, one line each; what does not fit is counted in the last of its kind."""
    found: list[str] = []
    everything = list(report.all_findings())
    for severity, word in _COMMANDS.items():
        mine = [finding for finding in everything if finding.severity is severity]
        room = len(mine) if len(mine) <= MOST_ANNOTATIONS else MOST_ANNOTATIONS - 1
        found += [_annotation(word, finding) for finding in mine[:room]]
        if len(mine) > room:
            rest = f"… and {len(mine) - room:,} more {word}s; the log of this step names them all"
            found.append(f"::{word} title=karat check::{_message(rest)}")
    return "".join(f"{line}\n" for line in found)


def _annotation(word: str, finding: Finding) -> str:
    message = finding.message if not finding.next else f"{finding.message}\nnext: {finding.next}"
    title = f"karat check: {finding.kind}"
    return f"::{word} file={_property(finding.path)},title={_property(title)}::{_message(message)}"


def _message(text: str) -> str:
    cut = text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"
    cut = "\n".join(printable(line) for line in cut.split("\n"))
    return cut.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def summary(report: Report, *, taken: int = 0) -> str:
    """The step's summary as Markdown, in the room that `taken` bytes of others leave."""
    room = LARGEST_SUMMARY - _ROOM - taken
    out: list[str] = []
    size = 0
    for index, piece in enumerate(_pieces(report)):
        cost = len(piece.encode("utf-8", "backslashreplace"))
        if size + cost > room:
            rest = len(report.checks) - max(index - 1, 0)
            out.append(f"\n… and {count(rest, 'golden')} more; the log names them all.\n")
            break
        out.append(piece)
        size += cost
    return "".join(out) if room > 0 else ""


def _pieces(report: Report) -> Iterator[str]:
    """The heading, then one piece per golden."""
    told = "".join(f"\n{_cell(f.message)}\n" for f in report.findings)
    yield f"## karat check: {report.outcome.value}\n{told}"
    for checked in report.checks:
        yield _piece(checked)


def _piece(checked: Checked) -> str:
    head = f"\n### {checked.outcome.value}: {_code(checked.name)}\n\n"
    rows = [
        f"| {_code(r.metric)} | {r.outcome.value} | {_cell(headline(r))} | {_cell(r.likely or '')} |\n"
        for r in checked.results
        if r.outcome not in {Outcome.PASS, Outcome.INFO}
    ]
    told = "".join(f"- {f.severity.value}: {_cell(f.message)}\n" for f in checked.about_file())
    table = (
        f"| metric | outcome | what | likely |\n|---|---|---|---|\n{''.join(rows)}" if rows else ""
    )
    command = ""
    if checked.refresh and checked.outcome is not Outcome.PASS:
        command = f"\nTo take this result: {_code(checked.refresh)}\n"
    return f"{head}{told}{table}{command}"


def _cell(text: str) -> str:
    """Text that is nothing but text, also inside a table."""
    plain = printable(text[:_LONGEST_MESSAGE])
    return _MARKS.sub(lambda match: f"&#{ord(match[0])};", plain)


def _code(text: str) -> str:
    """Text as code: in a fence longer than any run of backticks in it."""
    plain = printable(text[:_LONGEST_MESSAGE]).replace("|", "\\|")
    longest = max(map(len, _BACKTICKS.findall(plain)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{plain}{pad}{fence}"
