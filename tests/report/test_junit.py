from __future__ import annotations

from xml.etree import ElementTree as ET

from hypothesis import given, strategies as st

from karat.report.junit import attributes, text

ANYTHING = st.text(st.characters(exclude_categories=()))


@given(ANYTHING)
def test_whatever_a_name_holds_the_report_is_well_formed(words: str) -> None:
    xml = f"<a{attributes({'b': words})}>{text(words)}</a>".encode("utf-8", "strict")
    root = ET.fromstring(xml)  # noqa: S314 - our own
    assert root.get("b") == (root.text or "")


@given(st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff")))
def test_what_xml_can_carry_comes_back(words: str) -> None:
    root = ET.fromstring(f"<a>{text(words)}</a>")  # noqa: S314 - our own
    assert (root.text or "") == words
