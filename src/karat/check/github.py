"""GitHub Actions: annotations beside the code, and the summary of the step.

A summary may have 1 MiB; what is over is counted instead of silently dropped by the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from karat.check.report import Checked, Report
from karat.check.sentences import headline
from karat.compare.gate_result import Outcome
from karat.report.annotations import workflow_commands as commands_of
from karat.report.words import count, printable

LARGEST_SUMMARY = 1 << 20
_ROOM = 1 << 10
_LONGEST_MESSAGE = 4000
_BACKTICKS = re.compile("`+")
_MARKS = re.compile(r"[\\`*_\[\]<>|#~&@]")


def workflow_commands(report: Report) -> str:
    """Workflow commands, one line each."""
    return commands_of(report.all_findings(), "karat check")


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
