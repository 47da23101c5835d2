"""A hunt's report as one self-contained page: no network, nothing to load, and readable without scripts.

Names, titles and logs are hostile input: all text is escaped, links only where they are plain https. Charts are inline SVG in
the colours of the page's CSS variables.
"""

from __future__ import annotations

import html
import shlex
from collections.abc import Iterable, Iterator, Sequence

from karat.changepoints.series import Outcome
from karat.hunts.model import ChangeReport, HuntReport, StageReport, Suspect
from karat.hunts.report import sentences as say
from karat.report import html as page
from karat.report.chart import Band, Chart, Mark
from karat.report.html import text
from karat.report.words import count, printable

_MARKS = {
    Outcome.CRASH: ("✗", "grave"),
    Outcome.HANG: ("∞", "grave"),
    Outcome.BROKEN: ("□", "warn"),
    Outcome.MISSING: ("·", "missing"),
}
_TONES = {
    **dict.fromkeys(("regression", "crash", "hang"), "grave"),
    **dict.fromkeys(("improvement", "recovery"), "good"),
}


def render(report: HuntReport) -> str:
    answer, probe = say.conclusion(report), shlex.join(report.command)
    measured = f"{say.measured(report)}{f'; probe <code>{text(probe)}</code>' if probe else ''}"
    top = page.head(answer, about=f"Hunt: {report.name}", lines=[measured])
    body = "\n".join([top, "<main>", *_body(report), "</main>", page.FOOT])
    return page.page(title=answer, body=body, style=page.asset("karat.hunts.report", "page.css"))


def _body(report: HuntReport) -> Iterator[str]:
    for note in (*say.at_the_top(report), *report.notes):
        yield f'<p class="note">{text(note)}</p>'
    if report.stages:
        yield from _charts(report.stages[0], report)
    if report.split is not None:
        yield from (f"<p><b>{text(said)}</b></p>" for said in say.split_sentences(report.split))
        rows = ("".join(f"<td>{text(one)}</td>" for one in row) for row in say.split_table(report.split, report.units))
        yield f"<table class='rows'>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
    for culprit in report.culprits:
        change = culprit.change
        yield f'<section class="culprit {text(change.kind)}">'
        amount = text(say.amount(change, report.units.get(culprit.metric, "")))
        named = page.badge(say.heading(culprit, report), _TONES.get(change.kind, "warn"))
        yield f"<h2>{named} {text(culprit.metric)} {amount}</h2><dl>"
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
            yield _fact("try", f'<pre><code data-copy="commands">{text(change.reproduce)}</code></pre>')
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
        head = f"<h3>{text(one.point.label)}: {text(one.outcome)} <small>{text(said)}</small></h3>"
        opened = f'<article class="log" id="{anchor(stage, index)}" tabindex="-1">{head}'
        yield f"{opened}<pre>{html.escape(tail)}</pre></article>"
    yield "</section>"


def _metrics(stage: StageReport) -> list[str]:
    """Every metric that has a value, or a change, in order of appearance."""
    found = [metric for one in stage.points for metric in one.values]
    return list(dict.fromkeys([*found, *(change.span.metric for change in stage.changes)]))


def _table(stage: StageReport) -> Iterator[str]:
    tried = [(i, one) for i, one in enumerate(stage.points) if one.outcome is not None]
    metrics, rows = _metrics(stage), []
    for index, one in tried:
        outcome = text(f"{one.outcome}{f': {one.point.missing}' if one.point.missing else ''}")
        identity = one.attempts[-1].identity if one.attempts else {}
        rows.append(
            (
                page.Markup(text(say.titled(one.point)) + "".join(f"<br><em>{text(flag)}</em>" for flag in one.flags)),
                page.Markup(f'<a href="#{anchor(stage, index)}">{outcome}</a>' if one.log else outcome),
                *(", ".join(map(say.value, one.values.get(metric, ()))) for metric in metrics),
                len(one.attempts) or None,
                say.duration(sum(attempt.seconds for attempt in one.attempts)) if one.attempts else None,
                "; ".join(f"{key}={value}" for key, value in identity.items()),
            )
        )
    if rows:
        heads = ["point", "outcome", *metrics, "attempts", "time", "what was under test"]
        listed = page.plain_table(heads, rows)
        yield f"<details><summary>{count(len(tried), 'point')} and their attempts</summary>{listed}</details>"


def chart(stage: StageReport, metric: str, unit: str = "") -> str:
    changes = [change for change in stage.changes if change.span.metric == metric]
    marks = []
    for index, one in enumerate(stage.points):
        if one.outcome in _MARKS:
            hint = f"{say.titled(one.point)}: {one.outcome} {one.point.missing}".strip()
            href = "" if one.outcome is Outcome.MISSING else anchor(stage, index)
            marks.append(Mark(index, *_MARKS[one.outcome], hint, href))
    bands = []
    for change in changes:
        said, tone = f"{change.kind}: {say.amount(change)}, {say.between(change)}", _TONES.get(change.kind, "warn")
        bands.append(Band(change.span.good, change.span.bad, tone, said))
    drawn = Chart(
        name=f"{metric}{f' ({unit})' if unit else ''} over {stage.title}",
        labels=[one.point.label for one in stage.points],
        titles=[say.titled(one.point) for one in stage.points],
        values=[one.values.get(metric, ()) for one in stage.points],
        # Where each change may lie: after its last good point, up to its first bad one.
        bands=bands,
        levels=[*_levels(changes, len(stage.points) - 1)],
        marks=marks,
    )
    return drawn.draw(say.value)


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
