"""Imports of a file that is not parsed: every module that it may import, read off its bytes.

Whatever may be an import statement counts, in strings and comments as well: too much does no harm, since a module
counts only if its file is there and holds what is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_IMPORT = re.compile(rb"import\b")
_FROM = re.compile(rb"\bfrom\b((?:[ \t\f.\w\x80-\xff]|\\\r?\n)*)\Z")
_AGAIN = re.compile(rb"\bfrom\b")
_LISTED = re.compile(rb"[ \t\f]*(?:\\\r?\n[ \t\f]*)*\(((?:[\w\s,.*\\\x80-\xff]|\#[^\n]*)*)")
_LINE = re.compile(rb"(?:[^\n;\#()\\]|\\\r?\n|\\)*")
_COMMENT = re.compile(rb"\#[^\n]*")
_CONTINUED = re.compile(rb"\\\r?\n")
_DOTS = re.compile(rb"[ \t\f]*\.[ \t\f]*")
_NAME = re.compile(rb"\s*([\w.\x80-\xff]+)")
_WORD = re.compile(rb"[\w\x80-\xff]\Z")
_SPACE = b" \t\f\r\n"


class Tangled(Exception):  # noqa: N818 - a state of the text
    """So much of the text may be an import, over and over, that parsing it is quicker."""


def imported_modules(source: bytes) -> frozenset[str]:
    """Every module that the file may import: `a`, `a.b` and `a.b.c` for `from a.b import c`; dots in front are levels up."""
    found: set[bytes] = set()
    budget = 4 * len(source) + 100_000
    for match in _IMPORT.finditer(source):
        begin = match.start()
        if _WORD.match(source[begin - 1 : begin]):
            continue
        module, continued = _module(source, begin)
        listed = _LISTED.match(source, match.end()) if module else None
        text = listed[1] if listed else _line(source, match.end())
        budget -= len(text)
        if budget < 0:
            raise Tangled
        names = list(_names(text))
        if module:
            found.add(module)
            dot = b"" if module.endswith(b".") else b"."
            found.update(module + dot + name for name in names)
        if not module or continued:
            # A comment may end in a backslash, and the import after it is then one of its own.
            found.update(names)
    return frozenset(_with_parents(found))


def _module(source: bytes, end: int) -> tuple[bytes, bool]:
    """What stands between `from` and `import`, and whether it goes over several lines; nothing for a plain import."""
    begin = source.rfind(b"\n", 0, end) + 1
    while begin > 1 and source.endswith((b"\\\n", b"\\\r\n"), 0, begin):
        begin = source.rfind(b"\n", 0, begin - 1) + 1
    match = _FROM.search(source[begin:end])
    if match is None:
        return b"", False
    text = _AGAIN.split(match[1])[-1]
    return _DOTS.sub(b".", _CONTINUED.sub(b" ", text)).strip(_SPACE), b"\n" in text


def _line(source: bytes, begin: int) -> bytes:
    match = _LINE.match(source, begin)
    return match[0] if match else b""


def _names(text: bytes) -> Iterator[bytes]:
    plain = _CONTINUED.sub(b" ", _COMMENT.sub(b"", text) if b"#" in text else text)
    for part in _DOTS.sub(b".", plain).split(b","):
        match = _NAME.match(part)
        if match:
            yield match[1]


def _with_parents(modules: set[bytes]) -> Iterator[str]:
    for module in modules:
        text = module.decode("utf-8", "replace")
        yield text
        while "." in text.strip("."):
            text = text.rpartition(".")[0] if not text.endswith(".") else text[:-1]
            if text.strip("."):
                yield text
