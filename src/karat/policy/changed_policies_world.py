"""The world of one side: every Python file of a commit, so that names can be followed into other files."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from karat.findings import CannotVerify
from karat.goldens import git
from karat.policy.changed_policies_names import Import, Names
from karat.policy.scan_modules import Modules, stem
from karat.policy.scan_source import Unreadable, parse
from karat.policy.scan_vocabulary import SKIP_RULE

_GRANTS = r"check_grad|gradcheck|check_grads|OpSpec|max_relative_error|skip_check_grad"
_ROUNDS = 3
_PLAIN = re.compile(r"\w+", re.ASCII)


class World:
    """Files are read when a name leads to them, each once."""

    def __init__(self, root: Path, commit: str) -> None:
        self._root = root
        self._commit = commit
        self._known: dict[str, Names | None] = {}

    def loader(self, path: str) -> Import:
        """How a changed file finds what it imports; skips are followed into files that do not mention them, too."""

        def load(module: str, skips: bool) -> Names | None:  # noqa: ARG001, FBT001 - asked alike
            found = self._modules.find(module, path)
            return self.names(found) if found is not None and found != path else None

        return load

    def names(self, path: str) -> Names | None:
        """The names of a file; None where there is none, or where it is no Python."""
        if path not in self._known:
            self._known[path] = None  # for files that import each other
            with suppress(Unreadable, RecursionError):
                self._known[path] = Names(self._parsed(path), self._further(path))
        return self._known[path]

    def read(self, path: str) -> bytes | None:
        """The bytes of a Python file."""
        oid = self._files.get(path)
        return git.run_git(self._root, "cat-file", "blob", oid) if oid else None

    def mentioning(self, paths: Iterable[str]) -> set[str]:
        """Files with a word that is the name of one of these modules."""
        return self._with_words(stem(f"/{path}") for path in paths)

    def users(self, paths: Iterable[str], names: Iterable[str]) -> set[str]:
        """Files that grant something, and may have one of these names from one of these modules, or through others."""
        found: set[str] = set()
        waiting, words = set(paths), set(names)
        for _ in range(_ROUNDS):
            waiting = (self.mentioning(waiting) & self._with_words(words)) - found
            found |= waiting
            known = [one for one in map(self.names, waiting) if one is not None]
            words |= {name for one in known for name in one.made_of(words)}
        return (found & self._grep(_GRANTS)) - set(paths)

    def _further(self, path: str) -> Import:
        """From the second file on, skips are looked for only where they may be: else it would be every file."""

        def load(module: str, skips: bool) -> Names | None:  # noqa: FBT001 - asked alike
            found = self._modules.find(module, path)
            if found is None or found == path or (skips and found not in self._skipping):
                return None
            return self.names(found)

        return load

    def _parsed(self, path: str) -> ast.Module:
        data = self.read(path)
        if data is None:
            raise Unreadable("it is not there")
        return parse(data)

    @cached_property
    def _files(self) -> dict[str, str]:
        tree = git.tree_paths(self._root, self._commit)
        return {path: oid for path, oid in tree.items() if path.endswith(".py")}

    @cached_property
    def _modules(self) -> Modules:
        return Modules((path, f"{os.sep}{path}") for path in self._files)

    @cached_property
    def _skipping(self) -> set[str]:
        """Files that mention the skip, or a module that does; tests are imported by nobody."""
        found = self._grep(SKIP_RULE)
        return found | self.mentioning(p for p in found if not stem(f"/{p}").startswith("test"))

    def _with_words(self, words: Iterable[str]) -> set[str]:
        plain = sorted({word for word in words if _PLAIN.fullmatch(word)})
        return self._grep(rf"\b({'|'.join(plain)})\b") if plain else set()

    def _grep(self, pattern: str) -> set[str]:
        """Python files with a line that fits."""
        words = ("grep", "-l", "-z", "-a", "-E", "-e", pattern, self._commit, "--", "*.py")
        try:
            out = git.run_git(self._root, *words)
        except CannotVerify as error:
            if not str(error).endswith(": "):  # without a word of complaint, it has found nothing
                raise
            return set()
        names = (entry.partition(b":")[2] for entry in out.split(b"\0") if entry)
        return {os.fsdecode(name) for name in names}
