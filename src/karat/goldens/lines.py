"""Lines of a text file, with their endings, so that a file can be put together again."""

from __future__ import annotations

from karat.goldens import hazards


def decode(data: bytes) -> str:
    """The text of UTF-8 bytes, without a byte-order mark."""
    return data.removeprefix(hazards.BOM).decode()


def encode(text: str, like: bytes) -> bytes:
    """The bytes of a text, with a byte-order mark if the file as it stands has one."""
    return (hazards.BOM if like.startswith(hazards.BOM) else b"") + text.encode()


def split(text: str) -> list[str]:
    """The lines with their line feeds; only a line feed ends a line, as in git and editors."""
    *ended, rest = text.split("\n")
    lines = [line + "\n" for line in ended]
    return [*lines, rest] if rest else lines


def ending(line: str) -> str:
    """What ends a line: a line feed, with or without a carriage return, or nothing."""
    if line.endswith("\r\n"):
        return "\r\n"
    return "\n" if line.endswith("\n") else ""


def join(lines: list[str], like: str) -> str:
    """The lines put together, with a final line ending only if the old text has one."""
    text = "".join(lines)
    if like.endswith("\n"):
        return text
    return text.removesuffix("\n").removesuffix("\r")
