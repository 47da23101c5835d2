"""Python source as a stranger wrote it: bytes → a syntax tree, or a sentence that says why not."""

from __future__ import annotations

import ast
import io
import tokenize
import unicodedata
import warnings

_LARGEST = 32 << 20
"""Bytes beyond which nobody wrote a test by hand; such a file would cost minutes and gigabytes."""


class Unreadable(Exception):  # noqa: N818 - a state of the file
    """The bytes are no Python that this interpreter understands."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.line = line


def parse(source: bytes) -> ast.Module:
    """The syntax tree; Unreadable for whatever keeps it from being had."""
    if len(source) > _LARGEST:
        raise Unreadable(
            f"it has {len(source) >> 20} MiB, and files over {_LARGEST >> 20} MiB are not read"
        )
    try:
        with warnings.catch_warnings():
            # Invalid escapes and the like are that file's business.
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        raise Unreadable(f"{error.msg} (line {error.lineno or 1})", error.lineno or 0) from error
    except RecursionError as error:
        raise Unreadable("its expressions are nested too deeply to be parsed") from error
    except MemoryError as error:
        raise Unreadable("the parser gave up for want of memory: nested too deeply") from error
    except (ValueError, LookupError, OverflowError) as error:
        # Null bytes; an integer of thousands of digits; an encoding that nobody knows.
        raise Unreadable(f"{error}") from error


def words(source: bytes) -> bytes:
    """The bytes in which every ASCII identifier of the file stands as Python will read it.

    Identifiers are NFKC-normalised by Python, and an encoding may hide them from whoever looks at bytes.
    """
    if source.isascii() and b"coding" not in source[:400]:
        return source
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        text = source.decode(encoding, "replace")
    except (SyntaxError, LookupError, ValueError):
        text = source.decode("latin-1")
    return unicodedata.normalize("NFKC", text).encode("utf-8", "replace")
