"""Hooks of the site (mkdocs.yml): pages that are made when it is built, and links that lead out of `docs/`.

The home page is README.md; what stands beside it at the root, and what the code says of commands and schemas, are pages as
well. Files of the repository that a page links to are copied, so that the site needs no other server. Pictures are made
by `tools/pictures.py` where there is a browser.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import pictures

ROOT = Path(__file__).resolve().parents[1]

_LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)]*)?\)")
_PICTURE = re.compile(r"^<!-- picture: (\S+) (.+) -->$", re.MULTILINE)
BESIDE = {name: f"{name}.md" for name in ("AGENTS", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY")} | {
    "README": "index.md"
}
"""Pages at the root of the repository → where they are on the site."""


def moved(text: str, home: str, page: str) -> str:
    """The links of a page that stands at `home` in the repository, as they are at `page` on the site."""

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(home), found[2]))
        if target.startswith("docs/"):
            there = target.removeprefix("docs/")
        elif target.removesuffix(".md") in BESIDE:
            there = BESIDE[target.removesuffix(".md")]
        else:
            return f"{found[1]}{_relative(f'source/{_file_of(target)}', page)})"
        return f"{found[1]}{_relative(there, page)}{found[3] or ''})"

    return _LINK.sub(link, text)


def _relative(target: str, page: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def _file_of(target: str) -> str:
    """A folder is shown by its README, else by its first file."""
    place = ROOT / target
    if place.is_dir():
        place = next((file for file in (place / "README.md", *sorted(place.rglob("*"))) if file.is_file()), place)
    name = place.relative_to(ROOT).as_posix()
    return f"{name}.txt"  # to be read, and no page of the site


def sources() -> set[str]:
    """Files of the repository that are no pages, and that a page links to."""
    found = set()
    for home in [*ROOT.glob("docs/**/*.md"), *(ROOT / f"{name}.md" for name in BESIDE)]:
        for target in _LINK.findall(home.read_text(encoding="utf-8")):
            place = posixpath.normpath(posixpath.join(posixpath.dirname(home.relative_to(ROOT).as_posix()), target[1]))
            if not place.startswith("docs/") and place.removesuffix(".md") not in BESIDE:
                found.add(_file_of(place))
    return found


def commands() -> str:
    """The help of every command."""
    from karat.cli import SECTIONS, cli

    def walk(context: click.Context, depth: int) -> Iterator[str]:
        command = context.command
        yield f"{'#' * min(depth, 4)} {context.command_path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                if (found := command.get_command(context, name)) is not None:
                    yield from walk(click.Context(found, info_name=name, parent=context), depth + 1)

    root = click.Context(cli, info_name="karat", terminal_width=110, **cli.context_settings)
    parts = ["# All commands\n\nWhat `--help` prints, made from the code when this page was built.\n"]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in names:
            if (found := cli.get_command(root, name)) is not None:
                parts += walk(click.Context(found, info_name=name, parent=root), 3)
    return "\n".join(parts)


def schemas() -> Iterator[tuple[str, str]]:
    """A page that lists the JSON schemas, and each of them as a file."""
    from karat.schemas import names, schema

    rows = []
    for name in names():
        file = f"{name.replace('/', '.')}.json"
        whole = schema(name)
        rows.append(f"| [{name}]({file}) | {whole.get('title', '')} | {whole.get('description', '')} |")
        yield f"reference/{file}", json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    head = "# JSON schemas\n\nWhat `karat schema NAME` prints. A report names its schema in `schema`.\n\n"
    yield "reference/schemas.md", head + "| schema | of | |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def on_files(files: Any, config: Any) -> Any:
    """Mkdocs: all files of the site."""
    from mkdocs.structure.files import File

    made = {
        page: moved((ROOT / f"{name}.md").read_text(encoding="utf-8"), f"{name}.md", page)
        for name, page in BESIDE.items()
    }
    made["reference/commands.md"] = commands()
    made |= dict(schemas())
    made["llms.txt"] = (ROOT / "llms.txt").read_text(encoding="utf-8")
    made |= {f"source/{name}": (ROOT / name.removesuffix(".txt")).read_text(encoding="utf-8") for name in sources()}
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    for name in sorted(_pictured()):
        if (shot := pictures.picture(name)) is not None:
            files.append(File.generated(config, f"pictures/{name}.png", content=shot))
    return files


def _pictured() -> set[str]:
    return {
        found[0] for home in ROOT.glob("docs/**/*.md") for found in _PICTURE.findall(home.read_text(encoding="utf-8"))
    }


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Mkdocs: the text of a page."""
    name = page.file.src_uri
    text = markdown if page.file.generated_by else moved(markdown, f"docs/{name}", name)

    def shown(found: re.Match[str]) -> str:
        picture = f"pictures/{found[1]}.png"
        return f"![{found[2]}]({_relative(picture, name)})" if files.get_file_from_path(picture) else f"*{found[2]}*"

    return _PICTURE.sub(shown, text)
