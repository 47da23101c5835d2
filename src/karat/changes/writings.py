"""Writings: how the numbers of a column are written: decimal commas, thousands apart, units. Pure.

A column is understood as a whole: `1.234` is one number beside `3,5` and another beside `3.5`. Units are never converted:
a cell in another unit than the others of its column is no number there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from karat.goldens.series_block import text_number

_LONGEST = 64
_APART = ".,'’\u00a0\u202f"
_MEASURED = re.compile(
    rf"([$€£¥]?) ?([-+−]?[\d{_APART}]*\d(?:[eE][-+]?\d+)?) ?([%‰]|[A-Za-zµμ°Ω][^\s\d][^\s]{{0,18}}|[A-Za-zµμΩ]|)"
)
_WHOLE = re.compile(rf"[-+]?(?:\d*|\d{{1,3}}([{_APART}])\d{{3}}(?:\1\d{{3}})*)")
_GROUPED = re.compile(r"[-+−]?[1-9]\d{0,2}(?:,\d{3})+")


class Writing(msgspec.Struct, frozen=True, kw_only=True):
    """How the numbers of one column are written."""

    decimal: str = "."
    unit: str = ""

    def number(self, text: str) -> float | None:
        """The number in a cell; None if it is written in another way."""
        match = _match(text)
        if match is None:
            return None
        value = _value(match[2], self.decimal)
        # Zero is zero in any unit.
        return value if (match[1] or match[3]) == self.unit or value == 0 else None


def writing_of(cells: Sequence[Any], *, decimal_comma: bool) -> Writing | None:
    """How most cells of a column are written, where that is not plainly; `decimal_comma`: one comma is no thousand."""
    texts = [cell.strip() for cell in cells if isinstance(cell, str) and cell.strip()]
    if not any(_is_odd(text) for text in texts):
        return None
    matches = [match for text in texts if (match := _match(text)) is not None]
    if 2 * len(matches) <= len(texts):
        return None
    decimal = _decimal([match[2] for match in matches], decimal_comma=decimal_comma)
    ((unit, _),) = Counter(match[1] or match[3] for match in matches).most_common(1)
    found = Writing(decimal=decimal, unit=unit)
    read = sum(found.number(text) is not None for text in texts)
    plain = sum(text_number(text) is not None for text in texts)
    return found if read > plain and 2 * read > len(texts) else None


def _is_odd(text: str) -> bool:
    return "," in text or not (text[-1:].isdigit() and text_number(text) is not None)


def _match(text: str) -> re.Match[str] | None:
    return _MEASURED.fullmatch(text.strip()) if len(text) <= _LONGEST else None


def _decimal(bodies: Sequence[str], *, decimal_comma: bool) -> str:
    """The decimal mark: of two marks in one number the last; a comma before any but three digits."""
    both = Counter(max(".,", key=body.rfind) for body in bodies if "." in body and "," in body)
    if both:
        return both.most_common(1)[0][0]
    commas = [body for body in bodies if "," in body]
    grouped = all(_GROUPED.fullmatch(body) for body in commas)
    several = any(body.count(",") > 1 for body in commas)
    return "." if not commas or several or (grouped and not decimal_comma) else ","


def _value(body: str, decimal: str) -> float | None:
    mantissa, mark, exponent = re.sub("[eE]", "e", body.replace("−", "-")).partition("e")
    whole, _, fraction = mantissa.partition(decimal)
    if not _WHOLE.fullmatch(whole) or not (fraction.isdecimal() or not fraction):
        return None
    digits = re.sub(f"[{_APART}]", "", whole)
    return text_number(f"{digits}.{fraction or '0'}{mark}{exponent}")
