from __future__ import annotations

import re
from pathlib import Path

import pytest

from karat.cli import VERBS, cli
from karat.compare.change import Verdict
from karat.compare.rules import FIELDS
from karat.findings import KINDS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*DOCS.glob("*.md"), *ROOT.glob("*.md")]


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_page_that_names_every_option(verb: str) -> None:
    text = page(verb)
    assert text.startswith(f"# karat {verb}\n")
    command = cli.get_command(None, verb)  # type: ignore[arg-type]
    assert command is not None
    options = [o for p in command.params for o in p.opts if o.startswith("--")]
    assert [option for option in options if option not in text] == []
    assert verb in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_kind_is_on_the_page_with_its_sentence() -> None:
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", page("findings"), re.MULTILINE))
    assert rows == dict(KINDS)


def test_every_verdict_is_explained() -> None:
    assert set(re.findall(r"^\| `([a-z]+)` \|", page("verdicts"), re.MULTILINE)) == {
        v.value for v in Verdict
    }


def test_every_key_of_a_rule_is_documented() -> None:
    keys = re.findall(
        r"`([a-z_]+)`", "\n".join(re.findall(r"^\| (`[^|]+) \|", page("config"), re.MULTILINE))
    )
    assert set(keys) == FIELDS


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target
