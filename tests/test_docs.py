from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click
import pytest

import pictures
from factories.pages import blocks
from karat.cli import COMMANDS, cli
from karat.compare.change import Verdict
from karat.compare.rules import FIELDS
from karat.config import load
from karat.findings import KINDS
from karat.settings import RULES, PolicySettings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def verbs() -> Iterator[tuple[str, click.Command]]:
    """Every verb, and what a verb such as policy is made of: `policy gate`."""
    context = click.Context(cli)
    for verb in COMMANDS:
        command = cli.get_command(context, verb)
        assert command is not None
        yield verb, command
        if isinstance(command, click.Group):
            for part in command.list_commands(context):
                found = command.get_command(context, part)
                assert found is not None
                yield f"{verb} {part}", found


@pytest.mark.parametrize(("verb", "command"), list(verbs()), ids=str)
def test_every_verb_has_a_page_that_names_every_option(verb: str, command: click.Command) -> None:
    own = verb.removeprefix("store ")  # `karat store push` is `karat push`
    text = page(own.replace(" ", "-"))
    assert text.startswith(f"# karat {own}\n")
    # One option of all that write JSON is explained once, on the page of `karat help`.
    options = [o for p in command.params for o in p.opts if o.startswith("--") and o != "--json-limit"]
    assert "--json-limit" in page("help")
    assert [option for option in options if option not in text] == []
    assert own in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_kind_is_on_the_page_with_its_sentence() -> None:
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", page("findings"), re.MULTILINE))
    assert rows == {name: kind.meaning for name, kind in KINDS.items()}


def test_every_verdict_is_explained() -> None:
    assert set(re.findall(r"^\| `([a-z]+)` \|", page("verdicts"), re.MULTILINE)) == {v.value for v in Verdict}


def test_every_key_of_a_rule_is_documented() -> None:
    keys = re.findall(r"`([a-z_]+)`", "\n".join(re.findall(r"^\| (`[^|]+) \|", page("config"), re.MULTILINE)))
    assert set(keys) == FIELDS


def test_the_configuration_on_the_page_is_one_and_names_every_setting_of_the_policy(tmp_path: Path) -> None:
    for block in re.findall(r"^```toml\n(.*?)^```$", page("config"), re.MULTILINE | re.DOTALL):
        (tmp_path / "karat.toml").write_text(block, encoding="utf-8")
        load(tmp_path)
        if block.startswith("[policy]"):
            assert set(tomllib.loads(block)["policy"]) == set(PolicySettings.__struct_fields__)
            break
    else:
        pytest.fail("no block of [policy]")


def test_every_rule_that_approvers_may_have_is_on_the_page() -> None:
    said = page("config").partition("[policy.approvers]")[2].partition("The rules are ")[2]
    rules = re.findall(r"`(\w+)`", said.partition("(")[0])
    assert sorted(rules) == sorted(RULES)


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_module_and_room_that_a_map_names_is_there(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", text)) - {"docs/", "tests/cli/"}
    assert [one for one in sorted(named) if not any((ROOT / at / one).exists() for at in ("src/karat", "."))] == []
    rooms = {path.name for path in (ROOT / "src" / "karat").iterdir() if (path / "__init__.py").exists()}
    assert name != "ARCHITECTURE.md" or {f"{room}/" for room in rooms - {"cli"}} <= named


def test_every_page_is_in_the_menu_of_the_site() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    names = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert [name for name in names if not re.search(rf"[ \[]{re.escape(name)}", menu)] == [], (
        "add it to nav in mkdocs.yml"
    )


def test_the_readme_is_short_and_its_picture_is_what_karat_prints() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 80
    assert "make demo" in text
    shown, printed = (
        re.findall(r">([^<]+)</text>", svg) for svg in (pictures.README.read_text("utf-8"), pictures.terminal())
    )
    assert shown == printed, "run: python tools/pictures.py"


def named_commands() -> Iterator[str]:
    """Every `karat …` that the README and the pages for beginners tell people to type."""
    for path in (ROOT / "README.md", ROOT / "AGENTS.md", DOCS / "howto.md", DOCS / "why.md", DOCS / "scaling.md"):
        text = path.read_text(encoding="utf-8")
        yield from re.findall(r"`(karat [a-z][^`\n]*)`", text)
        for block in blocks(text):
            yield from re.findall(r"^(karat [a-z][^#\n]*)", block.text, re.MULTILINE)


@pytest.mark.parametrize("line", sorted({*named_commands()}))
def test_a_command_to_type_is_one(line: str) -> None:
    words = shlex.split(line)[1:]
    if words[1:] == ["TOPIC"] or words[1:] == ["COMMAND"]:
        return
    context, current = click.Context(cli), cast("click.Command", cli)
    while isinstance(current, click.Group):
        word = words[0] if words else ""
        found = current.get_command(context, word)
        if found is None:  # `karat hunt -- CMD` is `karat hunt run`
            assert word in {"", "--"} or word.startswith("-"), line
            return
        current, words = found, words[1:]
    known = {option for param in current.params for option in param.opts}
    own = words[: words.index("--")] if "--" in words else words
    assert [word for word in own if word.startswith("-") and word != "-" and word.partition("=")[0] not in known] == []
