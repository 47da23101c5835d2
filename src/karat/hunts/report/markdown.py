"""A hunt's report as Markdown, fit for an issue.

Titles, names and logs are hostile: nothing in them becomes markup, a mention or a link. What is linked are the commits.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from karat.changepoints.series import Outcome
from karat.hunts.model import Culprit, HuntReport, StageReport, Suspect
from karat.hunts.report import sentences as say
from karat.report.markdown import code, prose, table
from karat.report.words import printable

_SUSPECTS = 20


def render(report: HuntReport) -> str:
    parts = [f"# {prose(say.conclusion(report))}", *map(prose, say.at_the_top(report))]
    if report.split is not None:
        header, *rows = ([prose(cell) for cell in row] for row in say.split_table(report.split, report.units))
        parts += [*map(prose, say.split_sentences(report.split)), table(header, rows, numbers=False)]
    for culprit in report.culprits:
        parts += _culprit(culprit, report)
    if not report.culprits:
        parts.append("\n".join(f"- {prose(one.title)}: {prose(say.tried(one))}" for one in report.stages))
    parts += [f"## {title}\n\n" + "\n".join(lines) for title, lines in _sections(report) if lines]
    probe = f"; probe {code(shlex.join(report.command))}" if report.command else ""
    parts.append(f"<sub>karat hunt, {say.measured(report)}{probe}</sub>")
    return "\n\n".join(parts) + "\n"


def _culprit(culprit: Culprit, report: HuntReport) -> Iterator[str]:
    change = culprit.change
    stage = next((stage for stage in report.stages if stage.key == culprit.stage), None)
    unit = report.units.get(culprit.metric, "")
    name = say.heading(culprit, report).capitalize()
    amount = prose(say.amount(change, unit))
    yield f"## {name}: {prose(culprit.metric)} {amount}"
    dates = f" ({dates})" if (dates := say.dates(change)) else ""
    facts = [f"- **Since**: {say.between(change, code)}{dates}"]
    facts += [f"- **Where**: {prose(say.blame(change))}"] if say.blame(change) else []
    facts += [f"- **By how much**: {amount}", f"- **How sure**: {prose(say.confirmed(change))}"]
    yield "\n".join(facts)
    if suspects := culprit.suspects:
        several = f"One of these {len(suspects)}:" if len(suspects) > 1 else "If anything, this:"
        lines = [_suspect(one) for one in suspects[:_SUSPECTS]]
        if len(suspects) > _SUSPECTS:
            lines.append(f"- … and {len(suspects) - _SUSPECTS:,} more")
        lines += [f"- [all of them together]({address})" for address in say.compared(suspects)]
        yield f"{'The culprit:' if say.named(culprit) else several}\n\n" + "\n".join(lines)
    if change.verdict.tried:
        yield "Tried to find out:\n\n" + "\n".join(f"- {prose(line)}" for line in change.verdict.tried)
    if stage is not None:
        yield from _tables(stage, culprit)
    if change.reproduce:
        yield f"Reproduce with:\n\n{_fenced(change.reproduce, 'sh')}"


def _suspect(one: Suspect) -> str:
    name, link = code(say.short(one)), say.link(one.link)
    shown = f"[{name}]({link})" if link else name
    words = [f"- {prose(one.part)} {shown}", prose(one.title)]
    if one.author:
        words.append(f"({prose(one.author)}{f', {one.when:%Y-%m-%d}' if one.when else ''})")
    return " ".join(word for word in words if word)


def _tables(stage: StageReport, culprit: Culprit) -> Iterator[str]:
    """The points around a change, and what was really under test, where the two sides differ."""
    span, rows = culprit.change.span, []
    for one in stage.points[max(0, span.good - 3) : span.bad + 4]:
        if one.outcome is None:
            continue
        why = one.point.missing or (one.attempts[-1].signature if one.attempts else "")
        outcome = f"{one.outcome}: {code(why)}" if why and one.outcome is not Outcome.OK else one.outcome
        label = f"{code(one.point.label)} {prose(one.point.title)}".strip()
        rows.append((label, outcome, ", ".join(map(say.value, one.values.get(culprit.metric, ())))))
    if rows:
        yield table(("point", "outcome", prose(culprit.metric)), rows)
    # Of several attempts the last counts.
    known = {one.point.id: a.identity for one in stage.points for a in one.attempts}
    old, new = (known.get(at.id, {}) for at in (culprit.change.old, culprit.change.new))
    moved = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    rows = [(code(key), code(old.get(key, "–")), code(new.get(key, "–"))) for key in moved]
    if rows:
        yield "What was under test:\n\n" + table(("", "before", "after"), rows)


def _sections(report: HuntReport) -> Iterator[tuple[str, list[str]]]:
    """What is left to say of all stages: a title, and its lines."""
    stages = report.stages
    lines = []
    for stage in stages:
        notes = (say.missed(stage, report), say.flaky(stage), *stage.notes, *say.noises(stage))
        lines += [f"- {prose(stage.title)}: {prose(note)}" for note in notes if note]
    yield "To know", [*lines, *(f"- {prose(note)}" for note in report.notes)]
    blocks = []
    for stage in stages:
        for (outcome, signature), points in say.failures(stage).items():
            blocks.append(f"- **{outcome}** {code(signature)}: {say.listed(points, 20, code)}")
            log = next((one.log for one in stage.points if one.point.id == points[-1].id), "")
            if log:
                tail = _fenced("\n".join(log.splitlines()[-30:]), "text")
                inner = "\n".join(f"  {line}" for line in tail.splitlines())
                blocks.append(f"  <details><summary>the end of its log</summary>\n\n{inner}\n\n  </details>")
    yield "Crashed, hung or broken", blocks
    lacking = [(stage.title, *found) for stage in stages for found in say.lacking(stage).items()]
    lines = [f"- {prose(title)}: {say.listed(points, 20, code)}: {prose(why)}" for title, why, points in lacking]
    yield "Not available", lines


def _fenced(text: str, language: str) -> str:
    """A code block that nothing in it can end."""
    clean = "\n".join(printable(line) for line in text.splitlines())
    longest = max((len(run) for run in re.findall(r"`+", clean)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{clean}\n{fence}"
