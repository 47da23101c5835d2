"""Tolerances for people as a table, for karat.toml as rules, for programs as schema karat.tolerance/1."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from karat.findings import Finding
from karat.report.plain import encode, finding_json
from karat.runs.tolerances import Recommendation, runs_needed

SCHEMA = "karat.tolerance/1"


class Tolerances(msgspec.Struct, frozen=True, kw_only=True):
    """What some repeats say about every metric."""

    runs: tuple[str, ...]
    golden: str | None
    golden_is_run: bool
    """Whether the golden is one of the runs; otherwise the rates are estimates, no bounds."""
    rate: float
    metrics: tuple[Recommendation, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def shown(self) -> bool:
        """Whether the runs show the asked rate, with confidence."""
        return all(one.rate_bound <= self.rate for one in self.metrics)


def snippet(found: Tolerances) -> str:
    """The rules as they would stand in karat.toml."""
    rules = "\n".join("\n".join(_rule(one)) + "\n" for one in found.metrics)
    return f"{_PLACE}\n{rules}" if rules else ""


_PLACE = "# before all other [[rules]]: of those that match a metric, the first one counts"


def _rule(one: Recommendation) -> Iterator[str]:
    """All that decides, zeros too: what a rule leaves out, a preset or a rule behind it fills in."""
    yield "[[rules]]"
    yield f"metric = {toml_text(literal_glob(one.metric))}"
    yield f'check = "{one.check}"'
    if one.check == "exact":
        return
    yield f"rtol = {one.rtol!r}"
    yield f"atol = {one.atol!r}"
    if one.check == "approx":
        yield f"outliers = {one.outliers}"
        yield f"outliers_max = {one.outliers}"


def literal_glob(name: str) -> str:
    """The glob that matches this name and no other."""
    return re.sub(r"([*?\[])", r"[\1]", name)


def toml_text(text: str) -> str:
    """A TOML string; JSON's escapes are TOML's, but for the one character that only TOML forbids."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def lines(found: Tolerances) -> Iterator[str]:
    """The report for people."""
    golden = f", golden {found.golden}" if found.golden else ", the first of them the golden"
    yield f"{len(found.runs)} run(s){golden}"
    header = ("metric", "check", "tolerance", "seen", "alarms", "expected", "model", "catches")
    rows = [header, *map(_row, found.metrics)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    for finding in sorted(found.findings, key=lambda f: f.severity.rank):
        yield f"{finding.severity.value:4}  {finding.kind}: {finding.message}"
    yield ""
    yield from _explained(found)


def _row(one: Recommendation) -> tuple[str, ...]:
    relative = "" if one.atol else "%"
    scale = 1.0 if one.atol else 100.0
    allowed = one.atol or one.rtol
    exact = one.check == "exact"
    return (
        one.metric,
        one.check,
        "–" if exact else f"±{allowed * scale:.3g}{relative}",
        f"{one.observed * scale:.3g}{relative}",
        f"≤ {one.rate_bound:.1%}",
        f"≤ {one.rate_expected:.1%}",
        "–" if one.rate_model is None else f"~ {one.rate_model:.2%}",
        "any change" if exact else f"{one.smallest_shift * scale:.3g}{relative}",
    )


def _explained(found: Tolerances) -> Iterator[str]:
    if not found.golden_is_run:
        yield "The golden is none of these runs but made of them, or older: its rates are estimates, no bounds."
    yield "alarms: of a fresh run, with 95% confidence, whatever the distribution; expected: on average;"
    yield "model: if deviations are log-normal; catches: a change of all steps alike, from every run."
    yield from _together(found)
    if len(found.runs) == 2:
        yield "Two runs have one deviation and no spread: their tolerances are twice what was seen, which is a guess."
    if not found.shown:
        needed = runs_needed(found.rate)
        yield f"The asked rate, {found.rate:.2%}, is not shown: that takes {needed:,} runs; there are {len(found.runs)}."


def _together(found: Tolerances) -> Iterator[str]:
    total = sum(one.rate_expected for one in found.metrics)
    if total >= 1:
        yield "All metrics together may alarm in any run: these repeats are too few to promise less."
    elif total:
        yield f"All metrics together alarm at most once in {1 / total:.3g} runs, on average."


def document(found: Tolerances) -> bytes:
    """The JSON text of a report."""
    data: dict[str, Any] = {
        "schema": SCHEMA,
        **msgspec.to_builtins(found),
        "rate_shown": found.shown,
        "runs_needed": runs_needed(found.rate),
        "toml": snippet(found),
    }
    data["findings"] = [finding_json(finding) for finding in found.findings]
    return encode(data)
