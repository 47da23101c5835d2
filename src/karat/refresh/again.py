"""Again: the command that was typed, changed, so that what a finding tells to run next runs as it stands.

Findings are made where nobody knows the command line. They say `karat refresh --scope all`, with what is
to change and nothing else, and are made whole here. Pure: text in, text out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace

from karat.diff.advice import quoted
from karat.findings import Finding

_INSTEAD_OF = {
    "--run-id": ("--run-id", "--sha", "--workflow"),
    "--dry-run": ("--dry-run", "--write"),
    "--write": ("--dry-run", "--write"),
}
"""Option → those that it takes the place of; any other option, only its own."""
_FLAGS = frozenset({"--dry-run", "--write", "--keep-going", "--reset", "--accept-incomplete"})


def again(command: str, *words: str) -> str:
    """The command with these options in place of its own."""
    gone = {
        name for word in words if word.startswith("--") for name in _INSTEAD_OF.get(word, (word,))
    }
    return " ".join([*map(quoted, _without(shlex.split(command), gone)), *map(quoted, words)])


def without(command: str, *names: str) -> str:
    """The command without these options."""
    return " ".join(map(quoted, _without(shlex.split(command), set(names))))


def _without(words: Sequence[str], gone: set[str]) -> list[str]:
    kept = []
    following = False
    for word in words:
        if following:
            following = False
            continue
        name, equals, _ = word.partition("=")
        if name in gone:
            following = not equals and name not in _FLAGS
            continue
        kept.append(word)
    return kept


def completed(findings: Iterable[Finding], command: str, repo: str | None) -> list[Finding]:
    """The findings with commands that can be pasted."""
    return [
        replace(f, next=whole(f.next, command, repo)) if f.next is not None else f for f in findings
    ]


def whole(advice: str, command: str, repo: str | None) -> str:
    """A command that says only what is to change, with all the rest that was typed."""
    if advice.startswith("gh run ") and repo and " --repo " not in advice:
        return f"{advice} --repo {quoted(repo)}"
    words = shlex.split(advice) if advice.startswith("karat refresh --") else []
    if not words or words[2:] == ["--help"]:
        return advice
    # A source that names itself only means: the same once more, as it was typed.
    return again(command) if "--source" in words else again(command, *words[2:])
