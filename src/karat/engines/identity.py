"""Identity: what was really under test, as a few names with texts, and one digest of them. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_LINE = re.compile(r"\s*([A-Za-z_][\w.\-/+]{0,199})\s*=\s*(.*?)\s*")
_LONGEST = 4096
_MOST = 1000


def read_identity(output: bytes) -> dict[str, str]:
    """What an `identify` command printed: a JSON object, or lines of `name=value`; other lines are nobody's."""
    text = output.decode("utf-8", "backslashreplace")
    pairs = _from_object(text) or _from_lines(text)
    return {_text(name): _text(value) for name, value in list(pairs.items())[:_MOST]}


def _text(said: str) -> str:
    """What can be stored and sent: JSON may hold halves of letters."""
    return said[:_LONGEST].encode("utf-8", "backslashreplace").decode()


def identity_key(identity: Mapping[str, str]) -> str:
    """One digest of an identity; empty for one of which nothing is known, since that is nobody's equal."""
    if not identity:
        return ""
    canonical = json.dumps(dict(identity), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _from_object(text: str) -> dict[str, str]:
    try:
        document = json.loads(text)
        return dict(_flat("", document)) if isinstance(document, dict) else {}
    except (ValueError, RecursionError):
        return {}


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    """`{"commit": {"xla": "1a2b"}}` is `commit.xla`."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _flat(f"{prefix}.{name}" if prefix else str(name), each)
    else:
        yield prefix, value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _from_lines(text: str) -> dict[str, str]:
    matches = (_LINE.fullmatch(line) for line in text.splitlines())
    return {match[1]: match[2] for match in matches if match}
