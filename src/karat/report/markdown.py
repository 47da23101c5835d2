"""Markdown sections: what a reviewer must look at, the groups, the tables. Shared by diff and summary.

A section is a title and a body, so that a text that is too long can be cut between sections.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from karat.compare.change import Diff, Group
from karat.diffs.report.rows import ranked_rows
from karat.findings import Finding, Severity
from karat.report.words import (
    count,
    elide,
    labels,
    number,
    printable,
    short_path,
    signed,
    verdict_counts,
)
from karat.tensors.comparison import Comparison
from karat.tensors.report import TITLES, cells, ranked_tensors, type_text

_SHOWN = 20
_MEMBERS = 10
_NAME = 160
_SENTENCE = 400
"""Bounds that keep the two sections that matter most below any limit a forge has."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a Markdown text that is kept or dropped whole."""

    title: str
    body: str

    def text(self) -> str:
        """The section as Markdown."""
        return f"{self.title}\n\n{self.body}\n" if self.title else f"{self.body}\n"


def code(text: str) -> str:
    """Text as inline code that nothing in it can end; long names lose their middle."""
    clean = elide(printable(text), _NAME)
    longest = max((len(run) for run in re.findall(r"`+", clean)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if clean.startswith("`") or clean.endswith("`") else ""
    return f"{fence}{pad}{clean}{pad}{fence}"


def prose(text: str) -> str:
    """A sentence whose metric names and paths cannot become markup, a mention or a link."""
    escaped = re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", elide(printable(text), _SENTENCE))
    # Forges look for these in the rendered text, where a backslash does not stop them.
    return escaped.replace("@", "@\u200b").replace("://", ":\u200b//")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    titles = (title.replace("|", "\\|") for title in header)
    lines = ["| " + " | ".join(titles) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def must_look(diff: Diff) -> list[Section]:
    """What a reviewer must look at: fail findings, one line each, then what moved, by group."""
    fails = [f for f in diff.all_findings() if f.severity is Severity.FAIL]
    groups = [g for g in diff.groups if g.severity is Severity.WARN]
    found = []
    if fails:
        lines = [f"**{count(len(fails), 'finding')} to resolve:**", ""]
        lines += [_fail_line(f, diff.root) for f in fails[:_SHOWN]]
        if len(fails) > _SHOWN:
            lines.append(f"- … and {len(fails) - _SHOWN:,} more `fail` findings")
        found.append(Section("## Look at this first", "\n".join(lines)))
    if groups:
        names = labels(diff)
        lines = [_group_line(g, names) for g in groups[:_SHOWN]]
        if len(groups) > _SHOWN:
            lines.append(f"- … and {count(len(groups) - _SHOWN, 'group')} more")
        title = "## Then at what moved, one decision each"
        found.append(Section(title if fails else "## Look at what moved", "\n".join(lines)))
    return found


def _fail_line(f: Finding, root: str) -> str:
    where = f" {code(short_path(f.path, root))}:" if f.path else ""
    return f"- **{f.kind}**{where} {prose(f.message)}"


def _group_line(group: Group, short: dict[str, str]) -> str:
    span = ""
    if group.low is not None and group.high is not None:
        low, high = number(group.low), number(group.high)
        span = f", by {low}" if low == high else f", by {low} … {high}"
    paths = list(dict.fromkeys(path for path, _ in group.members))
    names = ", ".join(code(short[path]) for path in paths[:_MEMBERS])
    more = f" and {len(paths) - _MEMBERS} more" if len(paths) > _MEMBERS else ""
    if len(paths) == 1:
        return f"- {prose(group.title)}{span}: {names}"
    return f"- {prose(group.title)}{span}\n  <details><summary>members</summary>\n\n  {names}{more}\n\n  </details>"


def largest_rows(diff: Diff, top: int) -> Section | None:
    """The rows with the largest |avg_rel_diff|."""
    ranked = ranked_rows(diff)[:top]
    if not ranked:
        return None
    header = ("file", "metric", "verdict", "n", "avg", "mean |·|", "max |·|", "at step")
    rows = (
        (
            code(short_path(change.path, diff.root)),
            code(row.metric),
            row.verdict.value,
            str(row.n_steps),
            signed(row.avg_rel_diff),
            number(row.mean_abs_rel_diff),
            number(row.max_abs_rel_diff),
            "" if row.max_step is None else str(row.max_step),
        )
        for change, row in ranked
    )
    return Section(
        f"## Largest {len(ranked)} rows by |avg_rel_diff|",
        table(header, rows) + "\n\nPositive: the new value is smaller, for positive values.",
    )


def largest_tensors(diff: Diff, top: int) -> Section | None:
    """The tensors that moved, gravest first."""
    ranked = ranked_tensors(diff)
    if not ranked[:top]:
        return None
    rows = (
        (
            code(short_path(change.path, diff.root)),
            code(row.metric),
            row.verdict.value,
            tensor_type(tensor),
            *cells(tensor.numbers),
        )
        for change, row, tensor in ranked[:top]
    )
    title = f"## Tensors that moved, {len(ranked[:top])} of {len(ranked)}"
    return Section(title, table(("file", "tensor", "verdict", "of", *TITLES), rows))


def tensor_type(tensor: Comparison) -> str:
    """Its dtype and shape; a structured dtype is somebody's text."""
    return code(type_text(tensor))


def render(diff: Diff, *, top: int = 20) -> str:
    """The Markdown report of `karat diff --markdown`."""
    verdicts = verdict_counts(diff.changes) or "no golden changed"
    head = f"{code(diff.old)} → {code(diff.new)}: {count(len(diff.changes), 'golden')} compared ({verdicts}), {diff.unchanged:,} unchanged."
    sections = [Section("# Golden values", head), *must_look(diff), largest_rows(diff, top)]
    sections.append(largest_tensors(diff, top))
    return "\n".join(section.text() for section in sections if section is not None)


def fit(sections: Sequence[Section], limit: int) -> str:
    """The leading sections that fit into `limit` characters, and a note where some did not."""
    texts = [section.text() for section in sections]
    for kept in range(len(sections), -1, -1):
        parts = [*texts[:kept], _note(sections[kept:], limit)] if kept < len(texts) else texts
        whole = "\n".join(parts)
        if len(whole) <= limit:
            return whole
    return ""


def _note(left: Sequence[Section], limit: int) -> str:
    names = "; ".join(section.title.lstrip("# ") or "the rest" for section in left)
    return f"> Cut here to fit {limit:,} characters; not shown: {names}.\n"
