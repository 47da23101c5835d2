"""Exemptions: `exemptions.toml`, what need not be checked, who says so, why, and until when.

    schema = "karat.exemptions/1"

    [[exemption]]
    op = "argmax"
    kind = "no-grad-op"
    reason = "gives indices, which do not move with the input"
    owner = "@alice"

An entry that is incomplete or contradicts itself is a finding and covers nothing; the others still count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from fnmatch import fnmatchcase
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from karat.findings import CannotVerify, Finding, fail, suggest
from karat.system.command import Command
from karat.system.foreign import toml
from karat.system.foreign.limits import TEXT, read_plain

SCHEMA = "karat.exemptions/1"
Rule = Literal["gradient", "float64", "tolerance", "determinism", "weak"]
Kind = Literal["no-grad-op", "integer-only", "special"]
RULES: tuple[str, ...] = get_args(Rule)
EXEMPT_KINDS: tuple[str, ...] = get_args(Kind)
_HEAD = re.compile(r"\s*\[\[\s*(?:exemption|\"exemption\"|'exemption')\s*\]\]")
_LONG = re.compile(r'"""|\'\'\'')
TOO_SLOW = (
    "too slow is no reason: a gradient check costs a constant number of forwards, however many elements there are"
)
_SLOW = re.compile(
    r"(?i)\b((too|so|very|quite|really|is|are|was|were|runs?)[\s_-]+slow|slow[\s_-]+(tests?|checks?|ops?|to)|"
    r"takes?\s+(too|so|very)\s+long|too\s+long|tim(e|es|ed|ing)[- ]?outs?|time[- ]consuming|"
    r"too\s+(expensive|large|big|many\s+elements)|slow$)\b|^\s*slow\b"
)
_FILLER = re.compile(
    r"todo|tbd|fixme|none|reason|no|not|needed|need|skip|test|the|check|grad|gradient|check_grad|for|now"
)
_WILD = re.compile(r"[*?]|\[[^\]]+\]")
_LETTERS = 3  # Letters and digits that a glob of ops must have: `*_*`, `[a-z]*` and `mylib.ops.*` are names of nothing.
_WORDS = re.compile(r"[^\W\d_]{2,}")
LIMITS = {"tolerance": "max_relative_error", "determinism": "nondeterminism_bound"}


class Exemption(msgspec.Struct, frozen=True, kw_only=True):
    """One entry: what need not be checked."""

    op: str  # The op's name, or a glob.
    scope: str = "*"
    """`file.py::Class` (a glob; the class alone will do), `input:NAME`, `dtype:NAME`; `*` is all of the op."""
    rule: Rule = "gradient"
    kind: Kind = "special"
    reason: str
    owner: str
    issue: str | None = None
    expires: date | None = None  # The last day on which it holds.
    max_relative_error: float | None = None
    nondeterminism_bound: float | None = None
    path: str = ""
    line: int = 0

    def covers(self, rule: str, op: str) -> bool:
        """Whether it is about this rule and op, wherever."""
        return self.rule == rule and names_op(self.op, op)

    def speaks_of(self, test: str, input: str | None = None, dtype: str | None = None) -> bool:  # noqa: A002 - as in evidence
        """Whether its scope holds this test, input or dtype; None: whichever there is."""
        what, colon, name = self.scope.partition(":")
        if colon and not name.startswith(":"):
            given = {"input": input, "dtype": dtype}.get(what)
            return given is None or fnmatchcase(given, name)
        return self.names(test) or any(fnmatchcase(name, self.scope) for name in _names(test))

    def names(self, test: str) -> bool:
        """Whether its scope is this very test, and not a glob that holds it."""
        return self.scope in _names(test)

    @property
    def narrow(self) -> bool:
        """Whether it is about one input or dtype, and not about whole tests."""
        return self.scope.startswith(("input:", "dtype:"))

    def has_expired(self, today: date) -> bool:
        return self.expires is not None and self.expires < today

    @property
    def label(self) -> str:
        """For sentences: `exemptions.toml:12 (op argmax, gradient, no-grad-op, @alice)`."""
        scope = "" if self.scope == "*" else f", {self.scope}"
        return f"{self.path}:{self.line} (op {self.op}{scope}, {self.rule}, {self.kind}, {self.owner})"


KEYS = tuple(name for name in Exemption.__struct_fields__ if name not in {"path", "line"})


class ExemptionFile(msgspec.Struct, frozen=True, kw_only=True):
    entries: tuple[Exemption, ...] = ()
    findings: tuple[Finding, ...] = ()


def _names(test: str) -> tuple[str, ...]:
    """What a test may be called: with and without its file; `TestOps[relu]` is one op of a class made from specs."""
    name = test.rpartition("::")[2]
    return test, name, test.partition("[")[0], name.partition("[")[0]


def names_op(pattern: str, op: str) -> bool:
    """Whether a pattern means an op, by its full name or by its last part: `mylib.ops.softmax`, `softmax`."""
    return fnmatchcase(op, pattern) or fnmatchcase(op.rpartition(".")[2], pattern)


class ByOp:
    """Entries by the op that they name, in their order; each op is asked for once."""

    def __init__(self, entries: Iterable[Exemption]) -> None:
        self._entries = tuple(entries)
        self._known: dict[str, tuple[Exemption, ...]] = {}

    def about(self, op: str) -> tuple[Exemption, ...]:
        if op not in self._known:
            self._known[op] = tuple(entry for entry in self._entries if names_op(entry.op, op))
        return self._known[op]


def read(path: Path, shown: str | None = None) -> ExemptionFile:
    """The exemptions of a file; a file that is not there has none."""
    try:
        return parse(read_plain(path, TEXT), shown or path.name)
    except FileNotFoundError:
        return ExemptionFile()
    except OSError as error:
        text = f"cannot read {path}: {error.strerror or error}"
        raise CannotVerify(text, next_command=Command("ls", "-l", str(path))) from error


def parse(data: bytes, path: str = "exemptions.toml") -> ExemptionFile:
    try:
        text = data.decode("utf-8")
        document = toml.loads(text)
    except ValueError as error:
        return ExemptionFile(findings=(_invalid(f"{path}: expected TOML, found: {error}", path, 0),))
    known = ("schema", "exemption")
    found = [
        _invalid(f"{path}: unknown key {key!r}{suggest(key, known)} (known: {', '.join(known)})", path, 0)
        for key in document
        if key not in known
    ]
    if (said := document.get("schema", SCHEMA)) != SCHEMA:
        found.append(_invalid(f"{path}: expected schema = {SCHEMA!r}, found {said!r}", path, 0))
    raw = document.get("exemption", [])
    if not isinstance(raw, list):
        found.append(_invalid(f"{path}: expected [[exemption]] tables, found {_type_name(raw)}", path, 0))
        raw = []
    # The lines on which entries begin, in order; a text of several lines may hold what looks like one.
    lines, inside = [], ""
    for number, row in enumerate(text.splitlines(), 1):
        if not inside and _HEAD.match(row):
            lines.append(number)
        for mark in _LONG.findall(row):
            inside = "" if inside == mark else inside or mark
    entries: dict[tuple[str, str, str], Exemption] = {}
    for number, table in enumerate(raw):
        line = lines[number] if number < len(lines) else 0
        made = _entry(table, path, line)
        if isinstance(made, Finding):
            found.append(made)
            continue
        first = entries.setdefault((made.op, made.scope, made.rule), made)
        if first is not made:
            text = f"{made.label}: repeats the entry of line {first.line}; keep one of the two"
            found.append(_invalid(text, path, line))
    return ExemptionFile(entries=tuple(entries.values()), findings=tuple(found))


def _entry(table: object, path: str, line: int) -> Exemption | Finding:
    if not isinstance(table, dict):
        return _invalid(f"{path}:{line}: expected a table, found {_type_name(table)}", path, line)
    wrong = objection(table)
    if wrong is None:
        try:
            return msgspec.convert({**table, "path": path, "line": line}, Exemption)
        except msgspec.ValidationError as error:
            wrong = str(error).replace("`$.", "`")
    named = table.get("op")
    op = f" (op {named})" if isinstance(named, str) and named else ""
    return _invalid(f"{path}:{line}{op}: {wrong}", path, line)


def _type_name(value: object) -> str:
    names = {"dict": "a table", "list": "a list", "str": "a string"}
    return names.get(type(value).__name__, type(value).__name__)


def _invalid(message: str, path: str, line: int) -> Finding:
    return fail(
        "exemption-invalid",
        message,
        path=path,
        where=f"line {line}" if line else None,
        numbers={"line": line},
        next=f"{Command('edit', path)}  # line {line}" if line else Command("edit", path),
    )


def is_slow(reason: str) -> bool:
    """Whether a reason is that it takes too long, which is none."""
    return _SLOW.search(reason.strip()) is not None


def objection(table: Mapping[str, Any]) -> str | None:
    """The first thing that is wrong with an entry, or None; each check relies on those before it."""
    return next(chain(_keys(table), _names_and_reason(table), _link_and_limit(table)), None)


def _keys(table: Mapping[str, Any]) -> Iterator[str]:
    for key in table:
        if key not in KEYS:
            yield f"unknown key {key!a}{suggest(key, KEYS)} (known: {', '.join(KEYS)})"
    for key in ("op", "kind", "reason", "owner"):
        if key not in table:
            yield f"expected {key} to be set, found nothing"
    for key in ("op", "scope", "rule", "kind", "reason", "owner", "issue"):
        value = table.get(key, "x")
        if not isinstance(value, str):
            yield f"expected {key} to be a string, found {value!r}"
        elif not value.strip():
            yield f"expected {key} to have a value, found an empty string"
    expires = table.get("expires")
    if expires is not None and (type(expires) is not date or isinstance(expires, datetime)):
        yield f"expected expires as a day without quotes, 2027-01-31, found {expires!r}"


def _names_and_reason(table: Mapping[str, Any]) -> Iterator[str]:
    rule, kind, op = table.get("rule", "gradient"), table["kind"], table["op"]
    if rule not in RULES:
        yield f"there is no rule {rule!a}{suggest(rule, RULES)} (there are {', '.join(RULES)})"
    if kind not in EXEMPT_KINDS:
        if is_slow(kind.replace("-", " ").replace("_", " ")):
            yield f"{kind!r} is not a kind; {TOO_SLOW}"
        yield f"there is no kind {kind!a}{suggest(kind, EXEMPT_KINDS)} (there are {', '.join(EXEMPT_KINDS)})"
    if kind != "special" and rule != "gradient":
        yield f'kind = "{kind}" is about the rule gradient, found rule = "{rule}", which takes only kind = "special"'
    letters = re.findall(r"[^\W_]", _WILD.sub("", op.rpartition(".")[2]))
    if _WILD.search(op) and len(letters) < _LETTERS:
        yield f"expected op to name an operator, or a family such as conv*, found {op!r}, which matches nearly everything"
    what, colon, name = table.get("scope", "*").partition(":")
    if colon and not name.startswith(":") and not (what in {"input", "dtype"} and name.strip()):
        yield (
            f"expected scope as a test class (a glob), input:NAME or dtype:NAME, found {table['scope']!r}"
            f"{suggest(what, ['input', 'dtype'])}"
        )
    reason = table["reason"].strip()
    if is_slow(reason):
        yield f"reason {reason!r}: {TOO_SLOW}"
    words = {*_WORDS.findall(reason.lower())}
    # Not every script puts spaces between words.
    if reason.isascii() and (len(words) < 3 or all(map(_FILLER.fullmatch, words))):
        yield f"expected a reason that explains it to a stranger, found {reason!r}"


def _link_and_limit(table: Mapping[str, Any]) -> Iterator[str]:
    issue, rule = table.get("issue"), table.get("rule", "gradient")
    if issue is not None:
        try:
            parts = urlsplit(issue.strip())
        except ValueError:
            parts = urlsplit("")
        if not (parts.scheme in {"http", "https"} and "." in parts.netloc and parts.path.strip("/")):
            yield f"expected issue to be a link, https://…, found {issue!r}"
    if table["kind"] == "special":
        for key, why in (("issue", "a link to where it is tracked"), ("expires", "its last day")):
            if key not in table:
                yield f'kind = "special" needs {key} ({why}), found nothing'
    for other, key in LIMITS.items():
        value: Any = table.get(key)
        if rule != other and value is not None:
            yield f'{key} belongs to rule = "{other}", found rule = "{rule}"'
        number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        if rule == other and not (number and value > 0):
            yield f'rule = "{rule}" needs {key}, a positive number, found {value!r}'
