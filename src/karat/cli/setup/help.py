"""`karat help`."""

from __future__ import annotations

import click

from karat.cli.output import deliver
from karat.findings import KINDS, UsageError, suggest

TOPICS = {
    "exit-codes": """0  no problems
1  a fail finding: something is wrong
2  wrong usage or configuration
3  cannot verify: the network, a missing artifact, an unreadable store
""",
    "json": """Every command that reports takes --json F. With --json - the report is one line on stdout, and an error
is one as well: {"schema": "karat.error/1", "exit_code": 2, "error": "...", "next": "..."}.
--json-limit N keeps the first N entries of each list; left_out counts the rest.
`karat schema` lists the schemas, and prints one.
""",
    "environment": """KARAT_STORE  the store of push, pull, ls, pin and gc     KARAT_TODAY  the day for expiries
KARAT_JOBS   transfers at a time                         NO_COLOR     no colours
GITHUB_TOKEN, GITLAB_TOKEN  read by karat refresh and karat policy approvals, sent to their own host only
CI           where it is set, goldens are only rewritten with --write
""",
    "completion": """bash: eval "$(_KARAT_COMPLETE=bash_source karat)"      in ~/.bashrc
zsh:  eval "$(_KARAT_COMPLETE=zsh_source karat)"       in ~/.zshrc
fish: _KARAT_COMPLETE=fish_source karat | source       in ~/.config/fish/completions/karat.fish
man:  karat help --man > ~/.local/share/man/man1/karat.1
""",
    "platforms": """Python 3.11 to 3.14. CI tests Linux. On macOS what needs Linux (cores of one's own, memory limits) says so. On Windows
what reads works: diff, check, lint, audit, summary. What locks files or ends process groups (refresh, stage, pull, hunt) says that
it cannot, and works in WSL. CI tests neither of the two: it hides from karat what they lack.
""",
}
_EXAMPLES = """
  karat help diff
  karat help exit-codes
  karat help truncated            a kind of finding
  karat help --man > karat.1
"""


@click.command(epilog=_EXAMPLES)
@click.argument("topic", nargs=-1)
@click.option("--man", is_flag=True, help="Print the manual page of karat, for man.")
def command(*, topic: tuple[str, ...], man: bool) -> int:
    """Explain a command, a topic or a kind of finding.

    Without TOPIC, list the commands and the topics.
    """
    from karat import __version__
    from karat.cli import cli

    root = click.Context(cli, info_name="karat", **cli.context_settings)
    if man:  # roff, made from the commands' own help

        def plain(text: str) -> str:
            lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
            return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)

        parts = [
            f'.TH KARAT 1 "" "karat {__version__}"',
            ".SH NAME",
            "karat \\- keep the golden values of machine\\-learning frameworks honest",
            ".SH SYNOPSIS",
            ".B karat\n.I COMMAND\n[OPTIONS]",
            ".SH COMMANDS",
        ]
        for name in cli.list_commands(root):
            text = plain(_described(root, (name,)).get_help())
            parts += [f".SS {plain(name)}", ".nf", text, ".fi"]
        for title, text in TOPICS.items():
            parts += [f".SH {plain(title.upper())}", ".nf", plain(text.rstrip()), ".fi"]
        deliver("-", "\n".join(parts) + "\n")
        return 0
    word = " ".join(topic)
    if not word:
        deliver("-", f"{cli.get_help(root)}\n\nTopics of karat help: {', '.join(TOPICS)}.\n")
    elif word in TOPICS:
        deliver("-", TOPICS[word])
    elif word in KINDS:
        deliver("-", f"{word}: {KINDS[word].meaning}.\n")
    else:
        deliver("-", _described(root, topic).get_help() + "\n")
    return 0


def _described(root: click.Context, words: tuple[str, ...]) -> click.Context:
    """The context of a command that words such as `hunt split` name."""
    context, current = root, root.command
    for word in words:
        found = current.get_command(context, word) if isinstance(current, click.Group) else None
        if found is None:
            known = [*TOPICS, *KINDS, *(current.list_commands(context) if isinstance(current, click.Group) else ())]
            said = f"expected a command, a topic or a kind of finding, found {word!r}{suggest(word, known)}"
            raise UsageError(said, next_command="karat help")
        context, current = click.Context(found, info_name=word, parent=context), found
    return context
