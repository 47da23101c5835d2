"""Groups of commands: each command is imported when it is used, and listed without being imported."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from karat.findings import UsageError, suggest
from karat.system.command import Command


class LazyGroup(click.Group):
    """A group whose commands lie in modules: `karat.cli.COMMAND`, `karat.cli.GROUP.COMMAND`, or where `homes` says.

    Without a command's name, it is `otherwise`.
    """

    def __init__(
        self,
        *,
        summaries: Mapping[str, str],
        package: str = "karat.cli",
        homes: Mapping[str, str] | None = None,
        otherwise: str = "",
        **rest: Any,
    ) -> None:
        """`homes`: command → `module:function` in the package, where that is not `COMMAND:command`."""
        super().__init__(**rest)
        self.summaries, self._package = summaries, package
        self._homes, self._otherwise = homes or {}, otherwise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`karat hunt my.toml --strategy sweep` is `karat hunt run my.toml --strategy sweep`."""
        word = args[0] if args else ""
        if ctx.parent is not None and word and not word.startswith("-") and word not in self.summaries:
            hint = suggest(word, list(self.summaries))
            if not self._otherwise or (hint and not Path(word).exists()):
                said = f"{ctx.command_path} has no command {word!r}{hint}"
                raise UsageError(said, next_command=Command(*ctx.command_path.split(), "--help"))
        named = word in self.summaries or word in ctx.help_option_names
        return super().parse_args(ctx, args if named or not self._otherwise else [self._otherwise, *args])

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Every command."""
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, or None for an unknown one."""
        if cmd_name not in self.summaries:
            return None
        module, _, function = self._homes.get(cmd_name, f"{cmd_name}:command").partition(":")
        command: click.Command = getattr(import_module(f"{self._package}.{module}"), function)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))
