"""A hunt's report as one self-contained page: no script, no network, nothing to load.

Names, titles and logs are hostile input: all text goes through `html.escape`, links only where they are plain https.
"""

from __future__ import annotations

import html
import shlex
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from pathlib import PurePath

from karat.changes.series import Outcome
from karat.hunt import report_sentences as say
from karat.hunt.point import Suspect
from karat.hunt.report import Culprit, HuntReport, PointReport, StageReport
from karat.hunt.report_charts import anchor, chart
from karat.report.words import count, printable

_LOG_LINES = 400
_NAMED = 6
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render(report: HuntReport) -> str:
    """The page."""
    style = resources.files("karat").joinpath("hunt", "page.css").read_text(encoding="utf-8")
    body = "\n".join(_body(report))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(say.conclusion(report))}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"{body}\n</main>\n</body>\n</html>\n"
    )


def _text(text: str) -> str:
    return html.escape(printable(text))


def _lines(text: str) -> str:
    return "\n".join(map(_text, text.split("\n")))


def _body(report: HuntReport) -> Iterator[str]:
    yield f"<h1>{_text(say.conclusion(report))}</h1>"
    probe = f"; probe <code>{_text(shlex.join(report.command))}</code>" if report.command else ""
    yield f'<p class="quiet">{say.measured(report)}{probe}; {_text(PurePath(report.file).name)}</p>'
    for note in report.notes:
        yield f'<p class="note">{_text(note)}</p>'
    for culprit in report.culprits:
        yield from _culprit(culprit, report)
    for stage in report.stages:
        yield from _stage(stage, report)


def _culprit(culprit: Culprit, report: HuntReport) -> Iterator[str]:
    change = culprit.change
    shown = "dip" if change.dip is not None else change.kind
    yield f'<section class="culprit {_text(shown)}">'
    yield f"<h2><b>{_text(say.heading(culprit, report))}</b> {_text(culprit.metric)} {_text(_amount(culprit, report))}</h2>"
    yield "<dl>"
    yield _fact("since", _text(say.between(change)))
    if say.blame(change):
        yield _fact("where", _text(say.blame(change)))
    if culprit.suspects:
        title = "culprit" if say.named(culprit) else count(len(culprit.suspects), "suspect")
        yield _fact(title, _list(map(_suspect, culprit.suspects)))
    yield _fact("sure", _text(say.confirmed(change)))
    if change.verdict.tried:
        yield _fact("tried", _list(map(_text, change.verdict.tried)))
    if change.reproduce:
        yield _fact("try", f"<pre>{_lines(change.reproduce)}</pre>")
    yield "</dl></section>"


def _amount(culprit: Culprit, report: HuntReport) -> str:
    return say.amount(culprit.change, report.units.get(culprit.metric, ""))


def _fact(label: str, markup: str) -> str:
    return f"<dt>{_text(label)}</dt><dd>{markup}</dd>"


def _list(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


def _suspect(one: Suspect) -> str:
    shown = f"<code>{_text(say.short(one))}</code>"
    if say.link(one):
        shown = f'<a href="{html.escape(say.link(one))}" rel="noreferrer noopener">{shown}</a>'
    author = f' <span class="quiet">{_text(one.author)}</span>' if one.author else ""
    return f"{_text(one.part)} {shown} {_text(one.title)}{author}"


def _stage(stage: StageReport, report: HuntReport) -> Iterator[str]:
    yield f'<section class="stage"><h2>{_text(stage.title)}</h2>'
    state = "" if stage.state == "done" else f"; {stage.state}"
    yield f'<p class="quiet">{_text(say.tried(stage))}{_text(state)}</p>'
    for metric in _metrics(stage):
        unit = report.units.get(metric, "")
        named = f"{metric} ({unit})" if unit and unit != metric else metric
        yield f"<figure>{chart(stage, metric, unit)}<figcaption>{_text(named)}</figcaption></figure>"
    for note in (say.flaky(stage), *stage.notes, say.missed(stage.missed)):
        if note:
            yield f'<p class="note">{_text(note)}</p>'
    for reason, points in say.lacking(stage).items():
        yield f'<p class="quiet">{count(len(points), "point")} cannot be had ({_text(say.listed(points, _NAMED))}): {_text(reason)}</p>'
    yield from _table(stage)
    yield from _logs(stage)
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
    yield (
        "<thead><tr>"
        + "".join(f"<th>{_text(head)}</th>" for head in heads)
        + "</tr></thead><tbody>"
    )
    for index, one in tried:
        yield _row(stage, index, one, metrics)
    yield "</tbody></table></div></details>"


def _row(stage: StageReport, index: int, one: PointReport, metrics: Sequence[str]) -> str:
    outcome = _text(f"{one.outcome}{f': {one.point.missing}' if one.point.missing else ''}")
    if one.log:
        outcome = f'<a href="#{anchor(stage, index)}">{outcome}</a>'
    values = [", ".join(say.value(v) for v in one.values.get(metric, ())) for metric in metrics]
    seconds = sum(attempt.seconds for attempt in one.attempts)
    identity = one.attempts[-1].identity if one.attempts else {}
    under = "; ".join(f"{key}={text}" for key, text in identity.items())
    flags = "".join(f"<br><em>{_text(flag)}</em>" for flag in one.flags)
    cells = [
        f"{_text(one.point.label)}{flags}", outcome, *map(_text, values), str(len(one.attempts) or ""),
        say.duration(seconds) if one.attempts else "", f"<small>{_text(under)}</small>",
    ]  # fmt: skip
    return f'<tr class="{one.outcome}">' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _logs(stage: StageReport) -> Iterator[str]:
    """The end of the log of every point that did not succeed."""
    for index, one in enumerate(stage.points):
        if one.outcome not in (Outcome.CRASH, Outcome.HANG, Outcome.BROKEN):
            continue
        last = one.attempts[-1] if one.attempts else None
        said = (last.signature or last.note) if last else ""
        tail = "\n".join(printable(line) for line in one.log.splitlines()[-_LOG_LINES:])
        yield (
            f'<article class="log" id="{anchor(stage, index)}" tabindex="-1"><h3>{_text(one.point.label)}: '
            f"{_text(one.outcome)} <small>{_text(said)}</small></h3><pre>{html.escape(tail)}</pre></article>"
        )
