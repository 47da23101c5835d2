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


def schema() -> dict[str, object]:
    """The published schema, as the frame says it; the file of that name is this, written down."""
    made = msgspec.json.schema(HuntReport)
    top = made["$defs"]["HuntReport"]
    top["properties"]["schema"] = {"const": HuntReport.__struct_defaults__[0]}
    # The decoder fills in what is missing; a reader of the file may rely on all of it.
    top["required"] = list(top["properties"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "karat.hunt/1",
        "title": "karat hunt",
        "description": "Everything a hunt found.",
        **made,
    }
