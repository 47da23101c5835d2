"""Self-contained HTML pages of one family: frame, head, findings, tables; and the two ways in which text of strangers gets in.

Names are hostile input. In markup they go through `text`; in data for a script, through `script_json`, and the
script writes them with `textContent` only. Nothing is loaded over a network, and the page's own policy forbids it.
A page opens with its answer; `page.js` brings the theme, the copy buttons and tables that filter.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, Final

from karat.findings import KINDS, Finding, Severity
from karat.report.result import Result
from karat.report.words import count, printable

_SLOT: Final = re.compile(r"<!--karat:([a-z]+)-->|/\*karat:([a-z]+)\*/")
_SAFE_IN_SCRIPT: Final = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}
_MARKS: Final = {"grave": "×", "warn": "△", "info": "i", "good": "●", "quiet": "="}
TONES: Final = {Severity.FAIL: "grave", Severity.WARN: "warn", Severity.INFO: "info"}
_SHOWN: Final = 40  # Findings of a severity that are not folded.
_MOST_ROWS: Final = 5000
_LONG_WORD: Final = 24


class Markup(str):
    """Words that are markup already."""

    __slots__ = ()


def page(*, title: str, body: str, style: str = "", script: str = "", connects: bool = False) -> str:
    """The whole page: markup of the body, head first, in the common frame; the page's own style and script after the common ones.

    One that `connects` may ask the server it came from.
    """
    block = f'\n"use strict";\n(() => {{\n{asset("karat.report", "page.js")}\n{script}\n}})();\n'
    digest = base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()
    slots = {
        "title": text(title),
        "css": f"{asset('karat.report', 'page.css')}{style}",
        # This very script, and none that markup of others would bring.
        "scripts": f"script-src 'sha256-{digest}'; " + ("connect-src 'self'; " if connects else ""),
        "body": body,
        "script": f"<script>{block}</script>",
    }
    return fill(asset("karat.report", "page.html"), slots)


def head(
    answer: str, *, about: str = "", lines: Iterable[str] = (), command: str | None = None, tools: str = ""
) -> str:
    """The head of every page: the answer is its title; then what it is about, sentences as markup, the command."""
    said = [
        f'<p class="subject">{about if isinstance(about, Markup) else text(about)}</p>' if about else "",
        *(f'<p class="totals">{line}</p>' for line in lines),
    ]
    if command:
        said.append(f'<p class="command"><code id="command" data-copy="command">{text(command)}</code></p>')
    theme = '<button type="button" id="theme" title="Colours: as the system, light, dark">◐ Auto</button>'
    title = f'<h1><bdi>{text(answer)}</bdi></h1><div class="tools" hidden>{theme}{tools}</div>'
    return f'<header class="top"><div class="headline">{title}</div>{"".join(said)}</header>'


def badge(word: str, tone: str) -> str:
    """A word with its colour, and a mark for whoever does not see colours."""
    mark = f'<span class="mark" aria-hidden="true">{_MARKS[tone]}</span>'
    return f'<span class="badge {tone}">{mark}{text(word)}</span>'


def findings(found: Iterable[Finding]) -> str:
    """Findings as a list, gravest first; the rest of many, and what is for information, is folded."""
    shown, folded, quiet = [], [], []
    known = list(found)
    for severity in Severity:
        items, tone = [], TONES[severity]
        for one in (one for one in known if one.severity is severity):
            title = f' title="{text(KINDS[one.kind].meaning)}"' if one.kind in KINDS else ""
            where = "".join(f"<code>{text(part)}</code>" for part in (one.path, one.metric) if part)
            after = f'<p class="next"><code data-copy="command">{text(one.next)}</code></p>' if one.next else ""
            said = (
                f'<p class="where"><b{title}>{text(one.kind)}</b>{where}</p><p class="sentence">{text(one.message)}</p>'
            )
            items.append(f'<li class="finding {tone}">{badge(severity.value, tone)}<div>{said}{after}</div></li>')
        if severity is Severity.INFO:
            quiet = items
        else:
            shown += items[:_SHOWN]
            folded += items[_SHOWN:]
    parts = [f'<ul class="findings">{"".join(shown)}</ul>'] if shown else []
    for hidden, what in ((folded, "more"), (quiet, "for information")):
        if hidden:
            listed = f'<ul class="findings">{"".join(hidden)}</ul>'
            parts.append(f"<details><summary>{len(hidden):,} {what}</summary>{listed}</details>")
    return f"<section><h2>Findings</h2>{''.join(parts)}</section>" if parts else ""


def table(noun: str, heads: Sequence[str], rows: Sequence[tuple[str, Sequence[Any]]], tones: Mapping[str, str]) -> str:
    """Rows of a state and cells, gravest state first, with a chip per state and a filter."""
    order = {state: rank for rank, state in enumerate(tones)}
    ranked = sorted(rows, key=lambda row: order.get(row[0], len(order)))
    cells = [(Markup(badge(state, tones.get(state, "quiet"))), *row) for state, row in ranked[:_MOST_ROWS]]
    more = len(ranked) - len(cells)
    left = f'<p class="note">{count(more, "row")} more: --json has all.</p>' if more else ""
    bar = filter_bar(noun, states(Counter(state for state, _ in ranked), tones))
    listed = plain_table(("", *heads), cells, [state for state, _ in ranked], noun)
    return f"<section><h2>{text(noun.capitalize())}</h2>{bar}{listed}{left}</section>"


def plain_table(
    heads: Sequence[str], rows: Sequence[Sequence[Any]], states: Sequence[str] = (), noun: str | None = None
) -> str:
    """Rows of cells: markup, numbers, or names."""
    numbers = [any(isinstance(row[at], (int, float)) for row in rows) for at in range(len(heads))]
    classes = [' class="num"' if number else "" for number in numbers]
    titles = "".join(f'<th scope="col"{of}>{text(name)}</th>' for of, name in zip(classes, heads, strict=True))
    lines = []
    for at, row in enumerate(rows):
        of_state = f' data-state="{text(states[at])}"' if states else ""
        # On a phone, a row is a card, and each cell says what it is.
        labelled = zip(heads, classes, row, strict=True)
        cells = "".join(f'<td{of} data-label="{text(name)}">{_cell(cell)}</td>' for name, of, cell in labelled)
        lines.append(f"<tr{of_state}>{cells}</tr>")
    body = f'<tbody data-noun="{text(noun)}">' if noun else "<tbody>"
    head_ = f"<thead><tr>{titles}</tr></thead>"
    return f'<div class="wide"><table class="rows cards">{head_}{body}{"".join(lines)}</tbody></table></div>'


def states(tally: Mapping[Any, int], tones: Mapping[str, str]) -> str:
    """A chip for each state there is."""
    return "".join(
        f'<button type="button" class="chip {tones.get(state, "quiet")}" aria-pressed="false" data-state="{text(state)}">'
        f'<span class="mark" aria-hidden="true">{_MARKS[tones.get(state, "quiet")]}</span>{text(state)} <b>{n:,}</b></button>'
        for state, n in tally.items()
        if n
    )


def filter_bar(noun: str, chips: str) -> str:
    """What `page.js` filters a table of its section by."""
    return (
        f'<div class="chips" role="group" aria-label="Show only {text(noun)} in these states">{chips}</div>'
        f'<div class="bar" role="search" hidden><input type="search" placeholder="Filter {text(noun)}  ( / )"'
        f' aria-label="Filter {text(noun)}; spaces mean and" autocomplete="off" spellcheck="false">'
        '<output aria-live="polite"></output></div><p class="nothing" hidden>Nothing matches.</p>'
    )


def _cell(value: object) -> str:
    if isinstance(value, Markup):
        return value
    if isinstance(value, float):
        return f"{value:,.6g}".replace("-", "−")
    if isinstance(value, int):
        return f"{value:,}"
    said = text(str(value or ""))
    long = any(len(word) > _LONG_WORD for word in said.split())
    return f'<span class="long">{said}</span>' if long else said


def result_page(  # noqa: PLR0913 - the parts of a page
    found: Result,
    told: Sequence[Finding],
    *,
    about: str,
    noun: str,
    state: str,
    tones: Mapping[str, str],
    command: str,
    answer: str = "",
    above: str = "",
    below: str = "",
) -> str:
    """The page of a result: its answer, the findings, and its table, whose column `state` has the words of `tones`."""
    rows = found.rows()
    heads = [name for name in (rows[0] if rows else ()) if name != state]
    cells = [(str(row[state]), [row[name] for name in heads]) for row in rows]
    listed = table(noun, [name.replace("_", " ") for name in heads], cells, tones)
    answer = answer or found.headline()
    body = (head(answer, about=about, command=command), "<main>", above, findings(told), listed, below, "</main>", FOOT)
    return page(title=answer, body="".join(body))


FOOT: Final = "<footer><p>Written by karat; this page needs no network.</p></footer>"


def fill(template: str, slots: Mapping[str, str]) -> str:
    """The template with every slot filled, in one pass: nothing that was put in is looked at again."""
    return _SLOT.sub(lambda slot: slots[slot[1] or slot[2]], template)


def asset(package: str, name: str) -> str:
    """A file that lies beside the code."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def text(words: str) -> str:
    """Words as markup, on one line."""
    return html.escape(printable(words))


def script_json(value: object) -> str:
    """JSON that is safe inside a script element, whatever its strings hold."""
    dumped = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return dumped.translate(_SAFE_IN_SCRIPT)
