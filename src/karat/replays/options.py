"""Options: what to replay and how, as the command line says it."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from karat.bundles.manifest import Identity
from karat.findings import Finding, Severity, UsageError, suggest
from karat.goldens.paths import glob_regex

Framework: TypeAlias = Literal["torch", "jax", "numpy"]
Progress: TypeAlias = Callable[[int, int], None]
DEFAULT_TIMEOUT = 600.0
"""Seconds; a program that hangs must not hold a CI job for hours."""


class Function(msgspec.Struct, frozen=True, kw_only=True, tag="function"):
    """A Python function that takes a program and inputs, and returns outputs."""

    module: str
    name: str
    """Dotted, for a method of a class."""

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


class Command(msgspec.Struct, frozen=True, kw_only=True, tag="command"):
    """A command that reads files and leaves files; arguments with placeholders, never a shell."""

    words: tuple[str, ...]
    text: str = ""
    """As it was typed."""

    def __str__(self) -> str:
        return self.text or " ".join(self.words)


Runner: TypeAlias = Function | Command


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which cases; without a word, all of them."""

    only: tuple[str, ...] = ()
    """Globs of case paths or test ids."""
    suites: tuple[str, ...] = ()
    flows: tuple[str, ...] = ()


class Judging(msgspec.Struct, frozen=True, kw_only=True):
    """How a case is loaded and its outputs are judged."""

    framework: Framework | None = None
    """What inputs become; None for what they were."""
    rtol: float | None = None
    atol: float | None = None
    """Given here, they overrule what the bundle says, and the report says so."""
    verify: bool = True
    """Whether digests are looked at before a case is run."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to replay and how."""

    runner: Runner
    choice: Choice = Choice()
    judging: Judging = Judging()
    store: str | None = None
    timeout: float | None = DEFAULT_TIMEOUT
    jobs: int = 1
    isolated: bool = False
    """A fresh process for every case, not only after a crash."""
    keep: Path | None = None
    progress: Progress | None = None


# DOC-HERE runners: Runners: the words of the command line that say what runs a program.
#
# A mistake in them is found before any case runs, and told with what was probably meant.

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


# DOC-HERE selecting: Selecting: the cases that were asked for, and what is said if there are none.


def chosen(path: str, identity: Identity, choice: Choice) -> bool:
    """Whether a case was asked for: by path or test id, by suite and by flow, all of them together."""
    return (
        _matches(identity.suite, choice.suites)
        and _matches(identity.flow, choice.flows)
        and (not choice.only or any(_is_meant(path, identity, glob) for glob in choice.only))
    )


def _matches(word: str, globs: Sequence[str]) -> bool:
    return not globs or any(word == glob or fnmatchcase(word, glob) for glob in globs)


def _is_meant(path: str, identity: Identity, glob: str) -> bool:
    """A path or its folder, a test id, a glob of either; a test id has brackets that mean themselves."""
    names = (path, identity.test, f"{identity.test}::{identity.subtest}")
    if glob in names or path.startswith(glob.rstrip("/") + "/"):
        return True
    whole = glob_regex(glob)
    return any(whole.fullmatch(name) or fnmatchcase(name, glob) for name in names)


def nothing_chosen(bundle: str, choice: Choice, known: Iterable[tuple[str, Identity]]) -> Finding:
    """Replaying nothing must not look like a match."""
    cases = list(known)
    asked = [
        f"{option} {', '.join(words)}"
        for option, words in (
            ("--only", choice.only), ("--suite", choice.suites), ("--flow", choice.flows),
        )
        if words
    ]  # fmt: skip
    if not cases:
        message = f"expected cases in {bundle}, found none, so nothing was replayed"
        return _nothing(message, "karat verify --help")
    hint = _hint(choice, cases)
    message = f"expected a case that matches {' and '.join(asked)}, found none among {len(cases)} in {bundle}{hint}"
    return _nothing(message, "karat replay --help")


def _hint(choice: Choice, cases: Sequence[tuple[str, Identity]]) -> str:
    for word in choice.suites:
        return suggest(word, sorted({identity.suite for _, identity in cases}))
    for word in choice.flows:
        return suggest(word, sorted({identity.flow for _, identity in cases}))
    return suggest(choice.only[0], sorted({i.test for _, i in cases} | {p for p, _ in cases}))


def _nothing(message: str, command: str) -> Finding:
    return Finding(kind="nothing-compared", severity=Severity.FAIL, message=message, next=command)
