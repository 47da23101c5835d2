"""Words: how numbers, paths and counts are written in every report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import isnan

from karat.findings import Finding, Severity

BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_ALIKE = 20
_BEGINS_A_COMMAND = re.compile(r"(?:(?<=[\r\n])|\A)(?P<blanks>[^\S\r\n]*)::")
# What GitHub's, Azure's and TeamCity's logs take for a command wherever it stands: `##[…]`, `##vso[…]`, `##teamcity[…]`.
_OBEYED_ANYWHERE = re.compile(r"#(?=#\w*\[)")
# C0 and C1 without the ends of lines, and what turns the direction of writing.
_OBEYED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|\r(?!\n)")


def number(value: float | None) -> str:
    """A number for a table: short, sign kept."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    return f"{value:.2e}" if abs(value) < 1e-2 or abs(value) >= 1e4 else f"{value:.4f}"


def signed(value: float | None) -> str:
    """A number whose direction matters."""
    if value is None:
        return ""
    text = number(value)
    return f"+{text}" if value > 0 else text


def span(low: float | None, high: float | None, before: str = "") -> str:
    """`1.2 … 3.4`, or the one number that both are; nothing where either is unknown."""
    if low is None or high is None:
        return ""
    first, last = number(low), number(high)
    return before + (first if first == last else f"{first} … {last}")


def magnitude(value: float | None) -> float:
    """|value| for ranking and buckets: none is 0, and what is no number is beyond them all."""
    if value is None:
        return 0.0
    return float("inf") if isnan(value) else abs(value)


def count(n: int, noun: str) -> str:
    """`1 file`, `2 files`, `3 entries`, `4 days`, `5 crashes`."""
    changes = noun.endswith("y") and not noun.endswith(("ay", "ey", "oy"))
    plural = f"{noun[:-1]}ies" if changes else f"{noun}{'es' if noun.endswith('sh') else 's'}"
    return f"{n:,} {noun if n == 1 else plural}"


def byte_size(number: int) -> str:
    """`512 bytes`, `1.5 kB`, `3.2 GB`."""
    amount, unit = float(number), 0
    units = ("bytes", "kB", "MB", "GB", "TB")
    while amount >= 999.5 and unit < len(units) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{number:,} bytes" if unit == 0 else f"{amount:.3g} {units[unit]}"


def few(items: Sequence[object], most: int, separator: str = ", ") -> str:
    """`a, b, c and 4 more`."""
    more = f" and {len(items) - most:,} more" if len(items) > most else ""
    return separator.join(map(str, items[:most])) + more


def severity_counts(findings: Iterable[Finding]) -> str:
    """`2 fail, 14 warn, 3 info`."""
    tally = Counter(f.severity for f in findings)
    return ", ".join(f"{tally[s]:,} {s.value}" for s in Severity if tally[s])


def grouped_lines(findings: Iterable[tuple[Finding, str]]) -> Iterator[str]:
    """Findings and their messages as lines, worst first; of many that are alike, the first few."""
    kinds: dict[tuple[Severity, str], list[str]] = {}
    for finding, message in sorted(findings, key=lambda pair: pair[0].severity.rank):
        kinds.setdefault((finding.severity, finding.kind), []).append(message)
    for (severity, kind), messages in kinds.items():
        yield from (f"{severity.value:4}  {kind}: {message}" for message in messages[:_MOST_ALIKE])
        if len(messages) > _MOST_ALIKE:
            yield f"{severity.value:4}  {kind}: {len(messages) - _MOST_ALIKE:,} more; --json F has all"


def short_path(path: str, root: str) -> str:
    """The path below the folder that all goldens share."""
    return path[len(root) + 1 :] if root and path.startswith(root + "/") else path


def printable(text: str) -> str:
    """Text without control characters or lone surrogates: file names are not to be trusted."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return _OBEYED_ANYWHERE.sub("# ", shown) if "##" in shown else shown


def log_line(text: str) -> str:
    """Text as one line that neither a terminal nor the log of CI obeys: GitHub's takes `::`, after blanks, for a command."""
    shown = printable(text).rstrip()
    return f"\\{shown}" if shown.lstrip().startswith("::") else shown


def in_a_log(report: str, *, escaping: bool) -> str:
    """A whole report, in any format, that the log of CI does not obey; with `escaping`, a terminal does not either.

    What is escaped means the same to who reads JSON, TOML, XML or HTML.
    """
    markup = report.lstrip().startswith("<")
    form = "&#x{:x};" if markup else "\\u{:04x}"
    report = _BEGINS_A_COMMAND.sub(r"\g<blanks>&#x3a;:" if markup else r"\g<blanks>\\::", report)
    if not escaping:
        return report
    report = _OBEYED_ANYWHERE.sub(lambda found: form.format(ord(found[0])), report)
    return _OBEYED.sub(lambda found: form.format(ord(found[0])), report)


def elide(text: str, room: int) -> str:
    """The text with its middle left out, so that it fits."""
    if len(text) <= room:
        return text
    tail = (room - 1) * 2 // 3
    return f"{text[: room - 1 - tail]}…{text[len(text) - tail :]}"


def cut(text: str, room: int) -> str:
    """The text with its end left out, so that it fits."""
    return text if len(text) <= room else f"{text[: room - 1]}…"


def line_of(finding: Finding) -> int:
    """The line that a finding is about; 0 for the whole file."""
    line = finding.numbers.get("line")
    if isinstance(line, int):
        return line
    words = (finding.where or "").split()
    return int(words[1]) if len(words) == 2 and words[0] == "line" and words[1].isdecimal() else 0
