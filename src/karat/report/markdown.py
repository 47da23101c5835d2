"""Markdown in which names and sentences of strangers stay what they are: code, prose, tables, sections."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from karat.report.words import count, elide, printable

_NAME = 160
_SENTENCE = 400  # Bounds that keep what matters most below any limit a forge has.
_LIVELY = re.compile(r"@|#|:(?=//)|gh(?=-\d)|www(?=\.)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a Markdown text that is kept or dropped whole."""

    title: str
    body: str

    def text(self) -> str:
        return f"{self.title}\n\n{self.body}\n" if self.title else f"{self.body}\n"


def code(text: str, most: int = _NAME) -> str:
    """Text as inline code that nothing in it can end; long names lose their middle."""
    clean = elide(printable(text), most)
    longest = max((len(run) for run in re.findall(r"`+", clean)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if clean.startswith("`") or clean.endswith("`") else ""
    return f"{fence}{pad}{clean}{pad}{fence}"


def prose(text: str, most: int = _SENTENCE) -> str:
    """A sentence whose metric names and paths cannot become markup, a mention or a link."""
    escaped = re.sub(r"([\\`*_{}\[\]<>|#~$])", r"\\\1", elide(printable(text), most).replace("&", "&amp;"))
    # Forges look for these in the rendered text, where a backslash does not stop them: mentions, issues, addresses.
    return _LIVELY.sub("\\g<0>\u200b", escaped)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = True) -> str:
    """A Markdown table; the first column is text, the others are numbers, or text as well."""
    titles = (title.replace("|", "\\|") for title in header)
    lines = ["| " + " | ".join(titles) + " |", "|---" + ("|---:" if numbers else "|---") * (len(header) - 1) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def fit(sections: Sequence[Section], limit: int) -> str:
    """The leading sections that fit into `limit` characters, and a note where some did not."""
    texts = [section.text() for section in sections]
    for kept in range(len(sections), -1, -1):
        left = "; ".join(s.title.lstrip("# ") or "the rest" for s in sections[kept:])
        note = [f"> Cut here to fit {limit:,} characters; not shown: {left}.\n"] if left else []
        whole = "\n".join([*texts[:kept], *note])
        if len(whole) <= limit:
            return whole
    return ""


_RESERVED = 1 << 10  # Bytes that are left for the line that says what was left out.


def fit_bytes(head: str, pieces: Sequence[str], room: int, noun: str) -> str:
    """The head and the leading pieces, in at most `room` bytes, and how many did not fit; nothing without room for the head."""
    left = room - _RESERVED - len(head.encode("utf-8", "backslashreplace"))
    out = [head] if left > 0 else []
    for done, piece in enumerate(pieces if out else ()):
        left -= len(piece.encode("utf-8", "backslashreplace"))
        if left < 0:
            return "".join([*out, f"\n… and {count(len(pieces) - done, noun)} more; the log names them all.\n"])
        out.append(piece)
    return "".join(out)
