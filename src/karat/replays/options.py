"""What to replay and how, as the command line says it; mistakes in it are found before any case runs."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from karat.bundles.manifest import Identity
from karat.findings import Finding, UsageError, fail, suggest
from karat.goldens.paths import glob_matcher
from karat.system.command import Command
from karat.system.secrets import CLOUD

Framework: TypeAlias = Literal["torch", "jax", "numpy"]
Progress: TypeAlias = Callable[[int, int], None]

_PLACEHOLDER = re.compile(r"\{([A-Za-z_]+)\}")
_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_HELP = "karat replay --help"


class FunctionSpec(msgspec.Struct, frozen=True, kw_only=True, tag="function"):
    """A Python function that takes a program and inputs, and returns outputs."""

    module: str
    name: str  # Dotted, for a method of a class.

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


class CommandSpec(msgspec.Struct, frozen=True, kw_only=True, tag="command"):
    """A command that reads files and leaves files; arguments with placeholders, never a shell.

    All placeholders are paths: {program}, a file; {inputs}, a folder in the raw form; {outputs}, an empty folder;
    {expected}, a list as tensors.txt is; {manifest}, a file.
    """

    words: tuple[str, ...]
    text: str = ""  # As it was typed.

    def __str__(self) -> str:
        return self.text or " ".join(self.words)

    def uses(self, name: str) -> bool:
        return any(name in _PLACEHOLDER.findall(word) for word in self.words)

    def filled(self, places: Mapping[str, str]) -> list[str]:
        """The arguments with every known placeholder replaced once."""
        return [_PLACEHOLDER.sub(lambda match: places.get(match[1], match[0]), word) for word in self.words]


class CaseOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a case is loaded, and its outputs compared."""

    framework: Framework | None = None  # What inputs become; None for what they were.
    rtol: float | None = None
    atol: float | None = None  # Given here, they overrule what the bundle says, and the report says so.


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    runner: FunctionSpec | CommandSpec
    only: tuple[str, ...] = ()  # Globs of case paths or test ids; empty for all cases.
    case: CaseOptions = CaseOptions()
    store: str | None = None
    timeout: float | None = 600.0  # Seconds; a program that hangs must not hold a CI job for hours.
    jobs: int = 1
    keep: Path | None = None
    env_pass: tuple[str, ...] = ()
    """Variables that the program sees although they are secrets; see `karat.system.secrets`."""

    def passed(self, bundle: str) -> tuple[str, ...]:
        """The same, and what a worker needs to read a bundle from a bucket."""
        place = self.store or "" if bundle.startswith("store:") else bundle
        reads = CLOUD if "://" in place and isinstance(self.runner, FunctionSpec) else ()
        return (*self.env_pass, *reads)


def parse_function(word: str) -> FunctionSpec:
    """Parse `module:function`; nothing is imported yet."""
    module, colon, name = word.partition(":")
    if colon and _NAME.fullmatch(module) and _NAME.fullmatch(name):
        return FunctionSpec(module=module, name=name)
    raise UsageError(f"expected --run module:function, found {word!r}", next_command=_HELP)


def parse_command(text: str, cwd: Path) -> CommandSpec:
    """Split a command as a shell would; its executable must exist, and it must use {outputs}."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        said = f"expected --command as a shell would take it, found {text!r}: {error}"
        raise UsageError(said, next_command=_HELP) from error
    if not words:
        raise UsageError("expected --command with a command, found none", next_command=_HELP)
    used = [name for word in words for name in _PLACEHOLDER.findall(word)]
    if "outputs" not in used:
        said = "expected {outputs} in --command, found none: without a place for outputs nothing could be compared"
        raise UsageError(said, next_command=_HELP)
    # Missed now rather than once for every case; PATH is only asked for bare names.
    word = words[0]
    if not _PLACEHOLDER.search(word) and shutil.which(word if "/" not in word else str(cwd / word)) is None:
        exists = (cwd / word).is_file()
        reason = "the file is not executable" if exists else "there is no such file"
        said = f"expected --command to begin with an executable, found {word!r}: {reason}"
        raise UsageError(said, next_command=Command("chmod", "+x", word) if exists else _HELP)
    return CommandSpec(words=words, text=text)


def is_chosen(path: str, identity: Identity, only: Sequence[str]) -> bool:
    """Whether a case was asked for, by a path or its folder, a test id, or a glob of either; its brackets mean themselves."""
    names = (path, identity.test, f"{identity.test}::{identity.subtest}")

    def is_meant(glob: str) -> bool:
        if glob in names or path.startswith(glob.rstrip("/") + "/"):
            return True
        whole = glob_matcher(glob)
        return any(whole.fullmatch(name) or fnmatchcase(name, glob) for name in names)

    return not only or any(map(is_meant, only))


def nothing_chosen(bundle: str, only: Sequence[str], known: Mapping[str, Identity]) -> Finding:
    """Replaying nothing must not look like a match."""
    if not known:
        said = f"expected cases in {bundle}, found none, so nothing was replayed"
        return fail("nothing-compared", said, next="karat verify --help")
    hint = suggest(only[0], sorted({*known, *(identity.test for identity in known.values())}))
    said = f"expected a case that matches {' or '.join(only)}, found none among {len(known)} in {bundle}{hint}"
    return fail("nothing-compared", said, next=_HELP)
