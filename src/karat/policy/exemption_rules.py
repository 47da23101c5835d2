"""What an entry of exemptions.toml must say, and what it may not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from math import isfinite
from typing import Any
from urllib.parse import urlsplit

from karat.findings import suggest
from karat.policy.exemptions import EXEMPT_KINDS, RULES, Exemption

KEYS = tuple(name for name in Exemption.__struct_fields__ if name not in {"path", "line"})
TOO_SLOW = "too slow is no reason: a gradient check costs a constant number of forwards, however many elements there are"
_SLOW = re.compile(
    r"(?i)\b((too|so|very|quite|really|is|are|was|were|runs?)[\s_-]+slow|slow[\s_-]+(tests?|checks?|ops?|to)|"
    r"takes?\s+(too|so|very)\s+long|too\s+long|tim(e|es|ed|ing)[- ]?outs?|time[- ]consuming|"
    r"too\s+(expensive|large|big|many\s+elements)|slow$)\b|^\s*slow\b"
)
_PLACEHOLDERS = frozenset({
    "todo", "tbd", "fixme", "xxx", "none", "null", "na", "n/a", "reason", "no", "wip", "later", "temp", "temporary",
    "skip", "skipped", "special", "exempt", "test", "tests", "because", "the", "a", "this", "for", "now", "grad",
    "gradient", "check", "check_grad", "needed", "not", "need", "?", "-", ".", "…",
})  # fmt: skip
_WILD = re.compile(r"[*?]|\[[^\]]+\]")
_LETTERS = 3
"""Letters and digits that a glob of ops must have: `*_*`, `[a-z]*` and `mylib.ops.*` are names of nothing."""
_WORDS = re.compile(r"[^\W\d_]{2,}")
_LIMITS = {"tolerance": "max_relative_error", "determinism": "nondeterminism_bound"}


def is_slow(reason: str) -> bool:
    """Whether a reason is that it takes too long, which is none."""
    return _SLOW.search(reason.strip()) is not None


def objection(table: Mapping[str, Any]) -> str | None:
    """The first thing that is wrong with an entry, or None."""
    checks = (_keys, _texts, _rule, _kind, _pair, _op, _scope, _reason, _special, _limit)
    return next((said for check in checks if (said := check(table))), None)


def _keys(table: Mapping[str, Any]) -> str | None:
    for key in table:
        if key not in KEYS:
            return f"unknown key {key!a}{suggest(key, KEYS)} (known: {', '.join(KEYS)})"
    for key in ("op", "kind", "reason", "owner"):
        if key not in table:
            return f"expected {key} to be set, found nothing"
    return None


def _texts(table: Mapping[str, Any]) -> str | None:
    for key in ("op", "scope", "rule", "kind", "reason", "owner", "issue"):
        value = table.get(key, "x")
        if not isinstance(value, str):
            return f"expected {key} to be a text, found {value!r}"
        if not value.strip():
            return f"expected {key} to say something, found an empty text"
    expires = table.get("expires")
    if expires is not None and (type(expires) is not date or isinstance(expires, datetime)):
        return f"expected expires as a day without quotes, 2027-01-31, found {expires!r}"
    return None


def _rule(table: Mapping[str, Any]) -> str | None:
    rule = table.get("rule", "gradient")
    if rule in RULES:
        return None
    return f"no rule is called {rule!a}{suggest(rule, RULES)} (there are {', '.join(RULES)})"


def _kind(table: Mapping[str, Any]) -> str | None:
    kind = table["kind"]
    if kind in EXEMPT_KINDS:
        return None
    if _SLOW.search(kind.replace("-", " ").replace("_", " ")):
        return f"{kind!r} is not a kind; {TOO_SLOW}"
    return f"no kind is called {kind!a}{suggest(kind, EXEMPT_KINDS)} (there are {', '.join(EXEMPT_KINDS)})"


def _pair(table: Mapping[str, Any]) -> str | None:
    rule, kind = table.get("rule", "gradient"), table["kind"]
    if kind == "special" or rule == "gradient":
        return None
    return f'kind = "{kind}" is about the rule gradient, found rule = "{rule}", which only kind = "special" may bend'


def _op(table: Mapping[str, Any]) -> str | None:
    op = table["op"]
    letters = re.findall(r"[^\W_]", _WILD.sub("", op.rpartition(".")[2]))
    if _WILD.search(op) and len(letters) < _LETTERS:
        return f"expected op to name an operator, or a family of them such as conv*, found {op!r}, which is nearly everything"
    return None


def _scope(table: Mapping[str, Any]) -> str | None:
    what, colon, name = table.get("scope", "*").partition(":")
    if not colon or name.startswith(":"):
        return None
    if what in {"input", "dtype"} and name.strip():
        return None
    return (
        f"expected scope as a test class (a glob), input:NAME or dtype:NAME, found {table['scope']!r}"
        f"{suggest(what, ['input', 'dtype'])}"
    )


def _reason(table: Mapping[str, Any]) -> str | None:
    reason = table["reason"].strip()
    if _SLOW.search(reason):
        return f"reason {reason!r}: {TOO_SLOW}"
    words = _WORDS.findall(reason)
    hollow = all(word.strip(".,!:;") in _PLACEHOLDERS for word in reason.lower().split())
    # Not every script puts spaces between words.
    enough = len(words) >= 3 or (not reason.isascii() and sum(map(len, words)) >= 6)
    if hollow or not enough or len(set(reason.replace(" ", ""))) < 5:
        return f"expected a reason that explains it to a stranger, found {reason!r}"
    return None


def _special(table: Mapping[str, Any]) -> str | None:
    issue = table.get("issue")
    if issue is not None and not _is_link(issue):
        return f"expected issue to be a link, https://…, found {issue!r}"
    if table["kind"] != "special":
        return None
    for key, why in (("issue", "a link to where it is dealt with"), ("expires", "its last day")):
        if key not in table:
            return f'kind = "special" needs {key} ({why}), found nothing'
    return None


def _is_link(text: str) -> bool:
    try:
        parts = urlsplit(text.strip())
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and "." in parts.netloc and bool(parts.path.strip("/"))


def _limit(table: Mapping[str, Any]) -> str | None:
    rule = table.get("rule", "gradient")
    for other, key in _LIMITS.items():
        value = table.get(key)
        if rule != other and value is not None:
            return f'{key} belongs to rule = "{other}", found rule = "{rule}"'
        if rule == other and not _is_positive(value):
            return f'rule = "{rule}" needs {key}, a positive number, found {value!r}'
    return None


def _is_positive(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and isfinite(value)
        and value > 0
    )
