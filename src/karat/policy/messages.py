"""Messages: what a test lacks, and the three ways to set it right."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta

RULE = "Every op test has gradient evidence in float64 for every differentiable input, or an exemption."

_QUARTER = timedelta(days=90)
"""How long an exemption that karat writes down may hold."""


def lacks(
    test: str, op: str, inputs: Iterable[str], *, why: str = "", devices: Iterable[str] = ()
) -> str:
    """One line: `test_x.py::TestX (op relu): no gradient evidence in float64 for X, Y; why`."""
    named = listed(inputs) or "any input"
    where = f" on {listed(devices)}" if list(devices) else ""
    because = f"; {why}" if why else ""
    return f"{told(test, op)}: no gradient evidence in float64 for {named}{where}{because}"


def run_again(test: str) -> str:
    """The command that runs a test; `file.py::TestOps[relu]` is one op of a class made from specs."""
    class_, bracket, op = test.partition("[")
    if "::" in class_ and bracket and op.endswith("]"):
        return f"pytest {shlex.quote(class_)} -k {shlex.quote(op[:-1])}"
    return f"pytest {shlex.quote(test)}"


def told(test: str, op: str) -> str:
    """A test and its op, for the beginning of a sentence."""
    return f"{test} (op {op})" if op else test


def listed(names: Iterable[str], *, most: int = 6) -> str:
    """`X, Y and 3 more`."""
    every = sorted(set(names))
    more = len(every) - most
    return ", ".join(every[:most]) + (f" and {more:,} more" if more > 0 else "")


def ways(
    test: str, op: str, inputs: Sequence[str] = (), *, reason: str = "", today: date | None = None
) -> list[str]:
    """The three ways to set it right, as lines."""
    names = json.dumps(list(inputs) or ["X"], ensure_ascii=False)
    name = test.rpartition("::")[2]
    entry = exemption_entry(op=op or "OP", scope=test, reason=reason, today=today)
    return [
        f"1. {name} tests an operator: check its gradients,",
        f'     def test_check_grad(self): self.check_grad({names}, "Out")',
        "   and let it run: an empty, skipped or inherited test, or a flag set by hand, is no evidence.",
        f"2. {name} tests a Python API or anything else: let it inherit from unittest.TestCase, not from OpTest.",
        "3. there is a special reason not to check: decorate the class with",
        f"     @skip_check_grad_ci(reason={json.dumps(reason or 'why', ensure_ascii=False)})",
        "   and add this entry to exemptions.toml; it needs an approving review (karat policy approvals):",
        *textwrap.indent(entry, "     ").splitlines(),
    ]


def whole(test: str, op: str, inputs: Sequence[str], *, why: str = "", reason: str = "") -> str:
    """The whole message for an AssertionError: what is missing, and the three ways."""
    return "\n".join(
        [f"{lacks(test, op, inputs, why=why)}.", RULE, *ways(test, op, inputs, reason=reason)]
    )


def exemption_entry(
    *,
    op: str,
    scope: str = "*",
    rule: str = "gradient",
    reason: str = "",
    limits: Mapping[str, float] | None = None,
    today: date | None = None,
) -> str:
    """An entry of exemptions.toml, ready but for who and why."""
    return "\n".join(_entry(op, scope, rule, reason, limits or {}, today))


def _entry(
    op: str, scope: str, rule: str, reason: str, limits: Mapping[str, float], today: date | None
) -> Iterator[str]:
    first = today or date.today()  # noqa: DTZ011 - the day where the person is
    day = min(first, date.max - _QUARTER) + _QUARTER
    yield "[[exemption]]"
    yield f"op = {_text(op)}"
    if scope != "*":
        yield f"scope = {_text(scope)}"
    if rule != "gradient":
        yield f"rule = {_text(rule)}"
    if rule == "gradient":
        yield 'kind = "special"  # or "no-grad-op", if it has no gradient at all, which is verified'
        yield f"reason = {_text(reason or 'why this cannot be checked')}"
    else:
        yield 'kind = "special"'
        yield f"reason = {_text(reason or 'why it is needed')}"
    yield 'owner = "@you"'
    yield 'issue = "https://…"'
    yield f"expires = {day.isoformat()}"
    yield from (f"{key} = {value!r}" for key, value in limits.items())


def _text(words: str) -> str:
    """A text as TOML writes it; what a terminal must not see is escaped."""
    plain = words.encode("utf-8", "backslashreplace").decode()
    return f'"{"".join(map(_spelt, plain))}"'


def _spelt(char: str) -> str:
    if char in {'"', "\\"}:
        return f"\\{char}"
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
