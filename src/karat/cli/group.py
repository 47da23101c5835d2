"""Groups of commands: each command is imported when it is used, and listed without being imported."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from karat.cli.output import limit_json
from karat.findings import UsageError, suggest
from karat.system.command import Command

STORE_COMMANDS = {
    "push": "Upload captured cases to a store, under a name.",
    "pull": "Download cases from a store into a new folder.",
    "ls": "List what a store holds.",
    "pin": "Keep a snapshot permanently.",
    "gc": "Delete expired references, and objects that nothing needs.",
}
"""Each is `karat NAME` and `karat store NAME`."""


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
        sections: Mapping[str, Mapping[str, str]] | None = None,
        otherwise: str = "",
        **rest: Any,
    ) -> None:
        """`homes`: command → `module:function` in the package, where that is not `COMMAND:command`; `sections` of the help."""
        super().__init__(**rest)
        self._sections = sections or {"Commands": summaries}
        self.summaries, self._package = summaries, package
        self._homes, self._otherwise = homes or {}, otherwise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`karat hunt my.toml --strategy sweep` is `karat hunt run my.toml --strategy sweep`."""
        word = args[0] if args else ""
        asked = ctx.resilient_parsing  # by a shell, to complete a word: all commands are on offer, and nothing is said
        if not asked and ctx.parent is not None and word and not word.startswith("-") and word not in self.summaries:
            hint = suggest(word, list(self.summaries))
            if not self._otherwise or (hint and not Path(word).exists()):
                said = f"{ctx.command_path} has no command {word!r}{hint}"
                raise UsageError(said, next_command=Command(*ctx.command_path.split(), "--help"))
        named = word in self.summaries or word in ctx.help_option_names or (asked and not word)
        return super().parse_args(ctx, args if named or not self._otherwise else [self._otherwise, *args])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command and its words; an option where another's value should be is refused, or a file would be called so."""
        name, command, rest = super().resolve_command(ctx, args)
        options = [param for param in command.params if isinstance(param, click.Option)] if command else []
        valued = {name for option in options if not (option.is_flag or option.count) for name in option.opts}
        known = {name for option in options for name in option.opts}
        own = rest[: rest.index("--")] if "--" in rest else rest
        for option, value in pairwise(() if ctx.resilient_parsing else own):
            if option in valued and (value.startswith("--") or value in known):
                said = f"expected a value behind {option}, found {value}; a value that begins so is given as {option}={value}"
                raise UsageError(said, next_command=Command(*ctx.command_path.split(), str(name), "--help"))
        return name, command, rest

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, with a heading for its examples and a limit for JSON where it writes any; None for an unknown one."""
        if cmd_name not in self.summaries:
            return None
        module, _, function = self._homes.get(cmd_name, f"{cmd_name}:command").partition(":")
        command: click.Command = getattr(import_module(f"{self._package}.{module}"), function)
        if command.epilog and not command.epilog.startswith("\b"):
            examples = command.epilog.strip("\n")
            heading = "Examples" if "\n" in examples else "Example"
            command.epilog = f"\b\n{heading}:\n{examples}"
        names = {name for one in command.params if isinstance(one, click.Option) for name in one.opts}
        if "--json" in names and "--json-limit" not in names:
            said = "At most N entries of each list on stdout, with a count of the rest; 0: all (the default)."
            limit: dict[str, Any] = {
                "type": click.IntRange(min=0),
                "metavar": "N",
                "expose_value": False,
                "callback": limit_json,
            }
            command.params.append(click.Option(["--json-limit"], help=said, **limit))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))
