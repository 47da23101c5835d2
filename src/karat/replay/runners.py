"""Runners: the words of the command line that say what runs a program.

A mistake in them is found before any case runs, and told with what was probably meant.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from karat.findings import UsageError, suggest
from karat.replay.options import Command, Function

PLACEHOLDERS: Mapping[str, str] = {
    "program": "the path of the program file",
    "inputs": "a folder with the inputs in the raw form",
    "outputs": "an empty folder for what the command leaves",
    "expected": "a list, in the form of tensors.txt, of the outputs that are expected",
    "manifest": "the path of the case's manifest.json",
}
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]+)\}")
_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_HELP = "karat replay --help"


def parse_function(word: str) -> Function:
    """`module:function` as a function; nothing is imported yet."""
    module, colon, name = word.partition(":")
    if colon and _NAME.fullmatch(module) and _NAME.fullmatch(name):
        return Function(module=module, name=name)
    raise UsageError(
        f"expected --run module:function, found {word!r}{_probably(module, name)}",
        next_command=_HELP,
    )


def _probably(module: str, name: str) -> str:
    """What a path or a dotted name was probably meant to be."""
    if module.endswith(".py"):
        dotted = module.removesuffix(".py").removeprefix("./").replace("/", ".")
        return f"; did you mean {dotted}:{name or 'function'}?"
    if not name and "." in module and _NAME.fullmatch(module):
        first, _, last = module.rpartition(".")
        return f"; did you mean {first}:{last}?"
    return ""


def parse_command(text: str, cwd: Path) -> Command:
    """A typed command as its arguments; the executable must be there, and outputs must have a place."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(
            f"expected --command as a shell would take it, found {text!r}: {error}",
            next_command=_HELP,
        ) from error
    if not words:
        raise UsageError("expected --command with a command, found none", next_command=_HELP)
    _known_placeholders(words)
    _require_executable(words[0], cwd)
    return Command(words=words, text=text)


def _known_placeholders(words: tuple[str, ...]) -> None:
    used = [name for word in words for name in _PLACEHOLDER.findall(word)]
    for name in used:
        close = suggest(name, list(PLACEHOLDERS))
        if name not in PLACEHOLDERS and close:
            raise UsageError(
                f"expected one of {_all_placeholders()} in --command, found {{{name}}}{close}",
                next_command=_HELP,
            )
    if "outputs" not in used:
        raise UsageError(
            "expected {outputs} in --command, found none: without a place for outputs nothing could be compared",
            next_command=_HELP,
        )


def _all_placeholders() -> str:
    return ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)


def _require_executable(word: str, cwd: Path) -> None:
    """Missed now rather than once for every case; PATH is only asked for bare names."""
    if _PLACEHOLDER.search(word):
        return
    if shutil.which(word if "/" not in word else str(cwd / word)) is None:
        there = (cwd / word).is_file()
        why = "the file is not executable" if there else "there is no such file"
        raise UsageError(
            f"expected --command to begin with an executable, found {word!r}: {why}",
            next_command=f"chmod +x {shlex.quote(word)}" if there else _HELP,
        )


def filled(command: Command, places: Mapping[str, str]) -> list[str]:
    """The arguments with every known placeholder replaced, once; what is put in is not looked at again."""
    return [
        _PLACEHOLDER.sub(lambda match: places.get(match[1], match[0]), word)
        for word in command.words
    ]


def uses(command: Command, name: str) -> bool:
    """Whether the command has this placeholder."""
    return any(name in _PLACEHOLDER.findall(word) for word in command.words)
