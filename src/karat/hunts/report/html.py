"""A hunt's report as one self-contained page: no script, no network, nothing to load.

Names, titles and logs are hostile input: all text is escaped, links only where they are plain https. Charts are inline SVG in
the colours of the page's CSS variables.
"""

from __future__ import annotations

import html
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from karat.changepoints.series import Outcome
from karat.hunts.model import ChangeReport, HuntReport, StageReport, Suspect
from karat.hunts.report import sentences as say
from karat.hunts.report.split import split_sentences, split_table
from karat.report import html as page
from karat.report.html import text
from karat.report.words import count, printable

_WIDTH, _HEIGHT = 960, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 14, 46
_LARGEST = 1.7e308
_MARKS = {Outcome.CRASH: "✗", Outcome.HANG: "∞", Outcome.BROKEN: "□", Outcome.MISSING: "·"}


def render(report: HuntReport) -> str:
    body = "\n".join(["<main>", *_body(report), "</main>"])
    return page.page(title=say.conclusion(report), body=body, style=page.asset("karat.hunts.report", "page.css"))


def _body(report: HuntReport) -> Iterator[str]:
    yield f"<h1>{text(say.conclusion(report))}</h1>"
    probe = f"; probe <code>{text(shlex.join(report.command))}</code>" if report.command else ""
    yield f'<p class="quiet">{say.measured(report)}{probe}; {text(PurePath(report.file).name)}</p>'
    for note in (*say.at_the_top(report), *report.notes):
        yield f'<p class="note">{text(note)}</p>'
    if report.stages:
        yield from _charts(report.stages[0], report)
    if report.split is not None:
        yield from (f"<p><b>{text(said)}</b></p>" for said in split_sentences(report.split))
        rows = ("".join(f"<td>{text(one)}</td>" for one in row) for row in split_table(report.split, report.units))
        yield f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
    for culprit in report.culprits:
        change = culprit.change
        yield f'<section class="culprit {text(change.kind)}">'
        amount = text(say.amount(change, report.units.get(culprit.metric, "")))
        yield f"<h2><b>{text(say.heading(culprit, report))}</b> {text(culprit.metric)} {amount}</h2><dl>"
        for name, at in zip(say.sides(change.span.kind), (change.old, change.new), strict=True):
            dated = at.when and f"{at.when:%Y-%m-%d}" not in at.label
            when = f' <span class="quiet">{at.when:%Y-%m-%d %H:%M} UTC</span>' if dated else ""
            yield _fact(name, f"<code>{text(at.label)}</code> {text(at.title)}{when}")
        if say.blame(change):
            yield _fact("where", text(say.blame(change)))
        if culprit.suspects:
            title = "culprit" if say.named(culprit) else count(len(culprit.suspects), "suspect")
            yield _fact(title, _list(map(_suspect, culprit.suspects)))
        for address in say.compared(culprit.suspects):
            yield _fact("compare", _anchor(address, "all of them together"))
        yield _fact("sure", text(say.confirmed(change)))
        if change.verdict.tried:
            yield _fact("tried", _list(map(text, change.verdict.tried)))
        if change.reproduce:
            yield _fact("try", "<pre>" + "\n".join(map(text, change.reproduce.split("\n"))) + "</pre>")
        yield "</dl></section>"
    for stage in report.stages:
        yield from _stage(stage, report)


def _charts(stage: StageReport, report: HuntReport) -> Iterator[str]:
    for metric in _metrics(stage):
        unit = report.units.get(metric, "")
        named = f"{metric} ({unit})" if unit and unit != metric else metric
        yield f"<figure>{chart(stage, metric, unit)}<figcaption>{text(named)}</figcaption></figure>"


def _fact(label: str, markup: str) -> str:
    return f"<dt>{text(label)}</dt><dd>{markup}</dd>"


def _list(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


def _anchor(address: str, markup: str) -> str:
    return f'<a href="{html.escape(address)}" rel="noreferrer noopener">{markup}</a>'


def _suspect(one: Suspect) -> str:
    shown = f"<code>{text(say.short(one))}</code>"
    if link := say.link(one.link):
        shown = _anchor(link, shown)
    author = f' <span class="quiet">{text(one.author)}</span>' if one.author else ""
    return f"{text(one.part)} {shown} {text(one.title)}{author}"


def _stage(stage: StageReport, report: HuntReport) -> Iterator[str]:
    yield f'<section class="stage"><h2>{text(stage.title)}</h2>'
    state = "" if stage.state == "done" else f"; {stage.state}"
    yield f'<p class="quiet">{text(say.tried(stage))}{text(state)}</p>'
    if stage is not report.stages[0]:  # whose charts are at the top
        yield from _charts(stage, report)
    for note in (say.flaky(stage), *stage.notes, *say.noises(stage), say.missed(stage, report)):
        if note:
            yield f'<p class="note">{text(note)}</p>'
    for reason, points in say.lacking(stage).items():
        yield f'<p class="quiet">{count(len(points), "point")} not available ({text(say.listed(points, 6))}): {text(reason)}</p>'
    yield from _table(stage)
    for index, one in enumerate(stage.points):
        if one.outcome not in (Outcome.CRASH, Outcome.HANG, Outcome.BROKEN):
            continue
        last = one.attempts[-1] if one.attempts else None
        said = (last.signature or last.note) if last else ""
        tail = "\n".join(printable(line) for line in one.log.splitlines()[-400:])
        yield (
            f'<article class="log" id="{anchor(stage, index)}" tabindex="-1"><h3>{text(one.point.label)}: '
            f"{text(one.outcome)} <small>{text(said)}</small></h3><pre>{html.escape(tail)}</pre></article>"
        )
    yield "</section>"


def _metrics(stage: StageReport) -> list[str]:
    """Every metric that has a value, or a change, in order of appearance."""
    found = [metric for one in stage.points for metric in one.values]
    return list(dict.fromkeys([*found, *(change.span.metric for change in stage.changes)]))


def _table(stage: StageReport) -> Iterator[str]:
    tried = [(i, one) for i, one in enumerate(stage.points) if one.outcome is not None]
    if not tried:
        return
    metrics = _metrics(stage)
    yield f"<details><summary>{count(len(tried), 'point')} and their attempts</summary><div class='wide'><table>"
    heads = ["point", "outcome", *metrics, "attempts", "time", "what was under test"]
    yield ("<thead><tr>" + "".join(f"<th>{text(head)}</th>" for head in heads) + "</tr></thead><tbody>")
    for index, one in tried:
        outcome = text(f"{one.outcome}{f': {one.point.missing}' if one.point.missing else ''}")
        if one.log:
            outcome = f'<a href="#{anchor(stage, index)}">{outcome}</a>'
        identity = one.attempts[-1].identity if one.attempts else {}
        cells = [
            text(say.titled(one.point)) + "".join(f"<br><em>{text(flag)}</em>" for flag in one.flags),
            outcome,
            *(text(", ".join(map(say.value, one.values.get(metric, ())))) for metric in metrics),
            str(len(one.attempts) or ""),
            say.duration(sum(attempt.seconds for attempt in one.attempts)) if one.attempts else "",
            f"<small>{text('; '.join(f'{key}={value}' for key, value in identity.items()))}</small>",
        ]
        yield f'<tr class="{one.outcome}">' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    yield "</tbody></table></div></details>"


def chart(stage: StageReport, metric: str, unit: str = "") -> str:
    last = len(stage.points) - 1
    values = [v for point in stage.points for v in point.values.get(metric, ())]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    # Halves, so that values near the largest double do not overflow.
    room = (high / 2 - low / 2) * 0.16 or abs(high) * 0.01 or 1.0
    low, high = max(low - room, -_LARGEST), min(high + room, _LARGEST)

    def x(index: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * (index + 0.5) / max(1, last + 1), 1)

    def y(value: float) -> float:
        share = (value / 2 - low / 2) / ((high / 2 - low / 2) or 1.0)
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share, 1)

    changes = [change for change in stage.changes if change.span.metric == metric]
    name = f"{metric}{f' ({unit})' if unit else ''} over {stage.title}"
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(name)}">']
    for step in range(5):
        value = low * (1 - step / 4) + high * (step / 4)
        said = html.escape(say.value(value))
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(value)}" y2="{y(value)}"/>')
        parts.append(f'<text class="axis" x="{_LEFT - 6}" y="{y(value) + 4}" text-anchor="end">{said}</text>')
    # Where each change may lie: after its last good point, up to its first bad one.
    for change in changes:
        left, right = x(change.span.good), x(change.span.bad)
        said = html.escape(f"{change.kind}: {say.amount(change)}, {say.between(change)}")
        parts.append(
            f'<rect class="band {text(change.kind)}" x="{left}" y="{_TOP}" width="{max(2.0, right - left):.1f}"'
            f' height="{_HEIGHT - _TOP - _BOTTOM}"><title>{said}</title></rect>'
        )
    for first, final, level in _levels(changes, last):
        at = y(min(max(level, low), high))
        parts.append(f'<line class="level" x1="{x(first - 0.5)}" x2="{x(final + 0.5)}" y1="{at}" y2="{at}"/>')
    for index, one in enumerate(stage.points):
        if one.outcome in _MARKS:
            said = html.escape(f"{say.titled(one.point)}: {one.outcome} {one.point.missing}".strip())
            mark = (
                f'<text class="mark {one.outcome}" x="{x(index)}" y="{_HEIGHT - _BOTTOM + 14}" text-anchor="middle">'
                f"{_MARKS[one.outcome]}<title>{said}</title></text>"
            )
            failed = one.outcome is not Outcome.MISSING
            parts.append(f'<a href="#{anchor(stage, index)}" aria-label="{said}">{mark}</a>' if failed else mark)
    # With many points the dots shrink to a line's width.
    radius = 3.2 if last < 200 else 1.6 if last < 1500 else 1.0
    for index, one in enumerate(stage.points):
        for value in one.values.get(metric, ()):
            said = f"<title>{html.escape(f'{say.titled(one.point)}: {say.value(value)}')}</title>"
            parts.append(f'<circle class="dot" cx="{x(index)}" cy="{y(value)}" r="{radius}">{said}</circle>')
    # A few labels under the axis: first, last and some between.
    for index in sorted({round(last * i / 5) for i in range(6)} if stage.points else ()):
        label = stage.points[index].point.label
        short = html.escape(label if len(label) <= 18 else f"{label[:17]}…")
        # At the right edge there is room on one side only.
        side, at = ("end", _WIDTH - 1) if 0 < index == last else ("middle", x(index))
        inner = " between" if 0 < index < last else ""
        parts.append(f'<text class="axis{inner}" x="{at}" y="{_HEIGHT - 12}" text-anchor="{side}">{short}</text>')
    return "\n".join([*parts, "</svg>"])


def _levels(changes: Sequence[ChangeReport], last: int) -> Iterator[tuple[int, int, float]]:
    """From where to where, and how high: the level before each change of level and the one after the last; where failures begin or end, none changes."""
    start, after = 0, None
    for span in sorted((change.span for change in changes), key=lambda span: span.good):
        if span.before is not None and span.after is not None:
            yield start, span.good, span.before
            start, after = span.bad, span.after
    if after is not None:
        yield start, last, after


def anchor(stage: StageReport, index: int) -> str:
    """The id of a point's log on the page: nothing of its name, which is not to be trusted."""
    return f"log-{stage.key.replace('/', '-').replace('.', '-')}-{index}"
