from __future__ import annotations

from datetime import date

import pytest

from karat.policy.exemptions import parse
from karat.policy.gate.needs import exemption_entry, ways

TODAY = date(2026, 1, 1)


@pytest.mark.parametrize("rule", ["tolerance", "determinism", "float64", "weak"])
def test_an_entry_for_another_rule_does_not_speak_of_ops_without_gradient(rule: str) -> None:
    text = exemption_entry(op="tanh", rule=rule, today=TODAY)
    assert 'kind = "special"\n' in text
    assert "no-grad-op" not in text
    assert "cannot be checked" not in text


def test_an_entry_for_the_gradient_does() -> None:
    text = "\n".join(ways("t.py::TestTanh", "tanh", today=TODAY))
    assert "no-grad-op" in text
    assert "why this cannot be checked" in text


def test_an_entry_for_a_tolerance_is_one_but_for_who_and_why() -> None:
    text = exemption_entry(op="tanh", rule="tolerance", limits={"max_relative_error": 0.005}, today=TODAY)
    found = parse(text.replace("https://…", "https://example.org/1").encode())
    assert not found.findings
    assert (found.entries[0].rule, found.entries[0].max_relative_error) == ("tolerance", 0.005)
