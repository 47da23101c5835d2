"""Facts of one file: its classes, bases, decorators, flags and tolerances, from its text alone."""

from __future__ import annotations

from karat.policy.scan_lines import Lines
from karat.policy.scan_shapes import FileFacts
from karat.policy.scan_source import Unreadable, parse
from karat.policy.scan_syntax import read

__all__ = ["FileFacts", "facts_of"]


def facts_of(source: bytes, path: str) -> FileFacts:
    """What the file says about op tests; where it cannot be read, `problem` says why. It never raises."""
    try:
        return read(parse(source), path, Lines(source))
    except Unreadable as error:
        return FileFacts(path=path, problem=str(error), line=error.line)
    except RecursionError:
        return FileFacts(path=path, problem="its expressions are nested too deeply to be read")
