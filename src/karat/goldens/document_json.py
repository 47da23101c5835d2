"""document-json: any other JSON, kept as it is."""

from __future__ import annotations

import json
import re

from karat.findings import UsageError, fail
from karat.goldens import json_text
from karat.goldens.shapes import Document, Golden, Reading, Shape

_OPENING = re.compile(rb'(?:\xef\xbb\xbf)?[ \t\r\n]*[{\["]')


class DocumentJSON:
    """The catch-all of the JSON formats: whatever no other format claims."""

    name = "document-json"
    shape: Shape = "document"

    def claims(self, data: bytes) -> bool:
        # Broken JSON is claimed by its first byte: somebody has to say where it breaks.
        return bool(_OPENING.match(data)) or json_text.parse(data).ok

    def read(self, data: bytes) -> Reading:
        parsed = json_text.parse(data)
        if not parsed.ok:
            return Reading(None, parsed.findings, self.name)
        value, findings = parsed.value, parsed.findings
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
        return json_text.rewrite(like, golden.value)


FORMAT = DocumentJSON()
