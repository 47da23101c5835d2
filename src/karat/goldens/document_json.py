"""document-json: any other JSON, kept as it is.

A file that is one JSON string, and whose text is itself an object or a list, was dumped twice; it is
read as the document inside, and written back as a string.
"""

from __future__ import annotations

import json
import re
from typing import Any

from karat.findings import UsageError, fail
from karat.goldens import json_text
from karat.goldens.shapes import Document, Golden, Reading, Shape

_SPACE = " \t\r\n"
_OPENING = re.compile(rb'(?:\xef\xbb\xbf)?[ \t\r\n]*[{\["]')


class DocumentJSON:
    """The catch-all of the JSON formats: whatever no other format claims."""

    name = "document-json"
    shape: Shape = "document"

    def claims(self, data: bytes) -> bool:
        # Broken JSON is claimed by its first byte: somebody has to say where it breaks.
        return bool(_OPENING.match(data)) or json_text.look(data).ok

    def read(self, data: bytes) -> Reading:
        parsed = json_text.parse(data)
        if not parsed.ok:
            return Reading(None, parsed.findings, self.name)
        value, findings = parsed.value, parsed.findings
        inner = _inside(value)
        if inner is not None:
            value, findings = inner.value, (*findings, *inner.findings)
        if value is None or value in ({}, []):
            message = f"expected something to compare, found only {json.dumps(value)}"
            findings = (*findings, fail("empty", message, where="$"))
        return Reading(Document(value), findings, self.name)

    def write(self, golden: Golden, like: bytes | None = None) -> bytes:
        if not isinstance(golden, Document):
            raise UsageError(f"{self.name} holds documents, not a {golden.shape}")
        before = json_text.parse(like) if like is not None else None
        if like is None or before is None or not before.ok:
            return json_text.fresh(golden.value)
        value = golden.value
        if isinstance(value, (dict, list)) and _inside(before.value) is not None:
            value = json_text.rewrite_text(before.value, value)
        return json_text.rewrite(like, value)


def _inside(value: Any) -> json_text.Parsed | None:
    """What a string holds, if that is an object or a list."""
    if not isinstance(value, str) or not value.lstrip(_SPACE).startswith(("{", "[")):
        return None
    inner = json_text.parse_text(value)
    return inner if inner.ok else None


FORMAT = DocumentJSON()
