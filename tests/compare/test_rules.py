from __future__ import annotations

from math import inf

from karat.compare.rules import DEFAULTS, FIELDS, PartialRule, RuleBook
from karat.findings import Severity


def test_the_first_rule_that_sets_a_field_wins_and_the_rest_is_inherited() -> None:
    book = RuleBook.of([PartialRule("num-zeros", {"drift_avg": 0.7}, "karat.toml")])
    rule = book.rule_for("num-zeros")
    assert rule.drift_avg == 0.7
    assert rule.drift_mean == 5e-2, "from the default rule for num-zeros"
    assert rule.break_max == inf
    assert (rule.pattern, rule.origin) == ("num-zeros", "karat.toml")


def test_a_rule_can_be_for_some_paths_only() -> None:
    book = RuleBook.of([PartialRule("lm loss", {"noise": 0.5}, "karat.toml", "*fp8*")])
    assert book.rule_for("lm loss", "a/fp8/golden.json").noise == 0.5
    assert book.rule_for("lm loss", "a/bf16/golden.json").noise == 1e-4


def test_rules_may_name_the_last_element_of_a_documents_path() -> None:
    assert RuleBook().rule_for("0.generated_tokens").exact
    assert RuleBook().rule_for("0.latency").worst is Severity.WARN


def test_unknown_metrics_get_the_seeds_thresholds() -> None:
    rule = RuleBook().rule_for("something new")
    assert (rule.noise, rule.drift_avg, rule.pattern) == (1e-4, 1e-3, "*")


def test_defaults_set_only_fields_that_exist() -> None:
    assert all(rule.sets.keys() <= FIELDS for rule in DEFAULTS)
