"""Parts: a verb that is made of several, each imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from karat.findings import UsageError, suggest


class Parts(click.Group):
    """A group whose parts are modules `karat.cli.VERB.PART`; without a part's name it is `otherwise`."""

    def __init__(self, *, parts: Mapping[str, str], otherwise: str = "", **rest: Any) -> None:
        super().__init__(**rest)
        self._parts, self._otherwise = parts, otherwise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`karat hunt my.toml --strategy sweep` is `karat hunt run my.toml --strategy sweep`."""
        self._refuse_misspelt(ctx, args[0] if args else "")
        named = bool(args) and (args[0] in self._parts or args[0] in ctx.help_option_names)
        plain = named or not self._otherwise
        return super().parse_args(ctx, args if plain else [self._otherwise, *args])

    def _refuse_misspelt(self, ctx: click.Context, word: str) -> None:
        """`karat hunt statu` means no file of that name."""
        if not word or word.startswith("-") or word in self._parts:
            return
        hint = suggest(word, list(self._parts))
        if not self._otherwise or (hint and not Path(word).exists()):
            raise UsageError(
                f"no part of {ctx.command_path} is called {word!r}{hint}",
                next_command=f"{ctx.command_path} --help",
            )

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Every part."""
        return list(self._parts)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The part's command, or None for an unknown one."""
        if cmd_name not in self._parts:
            return None
        # Dispatched by the verb's module, `karat.cli.policy`, so that it does not depend on what was typed.
        assert self.callback is not None  # noqa: S101 - a group of ours has one
        command: click.Command = import_module(f"{self.callback.__module__}.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the parts without importing them."""
        with formatter.section("Parts"):
            formatter.write_dl(list(self._parts.items()))
