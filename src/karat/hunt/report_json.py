"""A hunt's report as JSON, schema karat.hunt/1: the frame of `hunt.report`, field by field."""

from __future__ import annotations

import msgspec

from karat.hunt.report import HuntReport


def document(report: HuntReport) -> bytes:
    """The report for a program; ends with a newline."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def read(data: bytes) -> HuntReport:
    """A report that was written down."""
    return msgspec.json.decode(data, type=HuntReport)
