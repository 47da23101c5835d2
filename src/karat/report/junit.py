"""XML text: names and values of strangers inside JUnit reports, well-formed whatever they say."""

from __future__ import annotations

from collections.abc import Mapping


def attributes(values: Mapping[str, str | int]) -> str:
    """Attributes of an element, with a space before each."""
    return "".join(f' {name}="{text(str(value))}"' for name, value in values.items())


def text(words: str) -> str:
    """Text without what XML 1.0 forbids, which no escape can carry, and with its marks escaped."""
    kept = "".join(c if _allowed(c) else _visible(c) for c in words)
    for mark, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot")):
        kept = kept.replace(mark, f"&{name};")
    return kept.replace("\n", "&#10;").replace("\t", "&#9;")


def _visible(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _allowed(char: str) -> bool:
    code = ord(char)
    if code < 0x20:
        return char in "\t\n"
    return code < 0xD800 or 0xE000 <= code <= 0xFFFD or 0x10000 <= code <= 0x10FFFF
