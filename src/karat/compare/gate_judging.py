"""Judging: everything that decides how the metrics of one golden are checked."""

from __future__ import annotations

from fnmatch import fnmatchcase

import msgspec
from msgspec import structs

from karat.compare.gate import mode_of
from karat.compare.gate_result import Exempting, nobody
from karat.compare.rules import STATUS_ORDER, Rule, RuleBook


def names(glob: str, metric: str) -> bool:
    """Whether a glob names a metric; of a document's path, the last element will do, as in rules."""
    return fnmatchcase(metric, glob) or fnmatchcase(metric.rsplit(".", 1)[-1], glob)


class Judging(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for one golden: the book, the golden's path, and what holds for this check only."""

    book: RuleBook = msgspec.field(default_factory=RuleBook)
    path: str = ""
    exact: tuple[str, ...] = ()
    """Globs of metrics that must be exact this time: those of a deterministic test."""
    status: tuple[str, ...] = STATUS_ORDER
    exempt: Exempting = nobody

    def rule(self, metric: str) -> Rule:
        """The rule of a metric; `exact` only tightens what would be approximate."""
        rule = self.book.rule_for(metric, self.path)
        if mode_of(rule) == "approx" and any(names(glob, metric) for glob in self.exact):
            return structs.replace(rule, check="exact", origin=f"--exact over {rule.origin}")
        return rule
