"""Matching: which golden a result is to be checked against.

In: results, and what `--golden` says. Out: pairs, in which a side may be lacking; nothing is read
yet. A golden is found by its identity (case and environment), else by its file name; two that fit
are an error that names them, because to guess would be to check against the wrong one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from karat.check.actuals import Actual, actuals_of, is_folder_of_results
from karat.check.settings import CheckSettings
from karat.findings import CannotVerify, UsageError
from karat.goldens import git
from karat.goldens.paths import PathFilter, identity_of, narrow

_CANDIDATES_SHOWN = 6


class GoldenAt(msgspec.Struct, frozen=True, kw_only=True):
    """Where a golden is, or would be."""

    name: str
    """The path below the root of the goldens: what rules, exemptions and people call it."""
    path: Path
    revision: str | None = None
    """`REV:path` for a golden that git is to be asked for; `path` is then where to ask."""


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """One check to make; without `actual`, the run left nothing for this golden."""

    actual: Actual | None
    golden: GoldenAt | None
    why: str = ""
    """Where a golden was looked for in vain."""


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """What finding a golden takes, apart from the result."""

    cwd: Path
    globs: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    settings: CheckSettings = CheckSettings()
    identity: Mapping[str, str] = msgspec.field(default_factory=dict)


def pair_up(words: Sequence[str], golden: str, where: Where) -> list[Pairing]:
    """The checks that the command line asks for."""
    if golden == "auto":
        return _asked_for(_all_found(words, _Tree(where), where), where)
    path = where.cwd / golden
    if path.is_dir():
        return _asked_for(_against_folder(words, _Tree(where, path, golden), where), where)
    at = _named(golden, where.cwd)
    for word in words:
        if is_folder_of_results(word, where.cwd):
            raise UsageError(
                f"expected a result to check against the golden {golden}, found the folder {word}",
                next_command=f"karat check {word} --golden FOLDER",
            )
    results = [actual for word in words for actual in actuals_of(word, where.cwd)]
    return [Pairing(actual=actual, golden=at) for actual in results]


def _named(word: str, cwd: Path) -> GoldenAt:
    """The golden that a word names: a file, or `REV:path` for one that git keeps."""
    path = cwd / word
    if ":" in word and not word.startswith("-") and not path.exists():
        return GoldenAt(name=word.partition(":")[2], path=cwd, revision=word)
    root = _repository(cwd)
    if root is not None and path.resolve().is_relative_to(root.resolve()):
        # From the root of the repository, which is what rules and exemptions know.
        return GoldenAt(name=path.resolve().relative_to(root.resolve()).as_posix(), path=path)
    return GoldenAt(name=word, path=path)


def _all_found(words: Sequence[str], tree: _Tree, where: Where) -> list[Pairing]:
    pairings = []
    owners: dict[str, Actual] = {}
    for word in words:
        for actual in actuals_of(word, where.cwd):
            at, why = tree.golden_of(actual)
            pairings.append(Pairing(actual=actual, golden=at, why=why))
            if at is not None and actual.inside is not None:
                _once(owners, at, actual)
    return pairings


def _once(owners: dict[str, Actual], at: GoldenAt, actual: Actual) -> None:
    """Two results of one folder that claim one golden: at least one of them is another's."""
    other = owners.setdefault(at.name, actual)
    if other is not actual:
        raise UsageError(
            f"expected one result for the golden {at.name}, found {other.name} and {actual.name}",
            next_command=f"karat check {other.name} --golden {at.name}",
        )


def _asked_for(pairings: Iterable[Pairing], where: Where) -> list[Pairing]:
    """Those that `--only` does not leave out; a result that was named is always asked for."""
    if not where.only:
        return list(pairings)
    return [
        p
        for p in pairings
        if (p.golden is not None and narrow(p.golden.name, where.only))
        or (p.golden is None and p.actual is not None and p.actual.inside is None)
    ]


def _against_folder(words: Sequence[str], tree: _Tree, where: Where) -> list[Pairing]:
    pairings = _all_found(words, tree, where)
    if not any(is_folder_of_results(word, where.cwd) for word in words):
        return pairings
    # Two folders are asked whether they agree, so what only the goldens have is missing.
    taken = {pairing.golden.name for pairing in pairings if pairing.golden}
    left = [at for at in map(tree.at, tree.goldens) if at.name not in taken]
    return [*pairings, *(Pairing(actual=None, golden=at) for at in left)]


class _Tree:
    """The goldens below one folder, listed when first asked for."""

    def __init__(self, where: Where, root: Path | None = None, word: str = "") -> None:
        self._where = where
        self._named = root is not None
        self._root = root or _repository(where.cwd) or where.cwd
        self._prefix = f"{word.rstrip('/')}/" if word else ""

    def at(self, path: str) -> GoldenAt:
        return GoldenAt(name=self._name(path), path=self._root / path)

    def _name(self, path: str) -> str:
        """From the root of the repository, wherever the folder is: rules and exemptions say it so."""
        return f"{self._below}/{path}" if self._below else path

    @cached_property
    def _below(self) -> str:
        """The way from the root of the repository to this folder; empty outside of one."""
        root = _repository(self._where.cwd) if self._named else None
        here = self._root.resolve()
        if root is None or not here.is_relative_to(root.resolve()):
            return ""
        below = here.relative_to(root.resolve()).as_posix()
        return "" if below == "." else below

    @cached_property
    def goldens(self) -> list[str]:
        """Every golden's path; in a folder that was named, every data file if none looks like one."""
        paths = sorted(_walk(self._root) if self._named else _listed(self._root))
        wanted = PathFilter(self._where.globs, self._where.exclude)
        found = [path for path in paths if wanted(path)]
        if not found and self._named:
            by_extension = wanted.by_extension()
            found = [path for path in paths if by_extension(path)]
        return found

    def golden_of(self, actual: Actual) -> tuple[GoldenAt | None, str]:
        """The golden of a result; without one, what was looked for."""
        identity = {**self._identity(actual), **self._where.identity}
        pattern = None if self._named else self._where.settings.golden
        if pattern is not None:
            return self.at(_filled(pattern, identity, actual)), ""
        for names, how in self._ways(actual, identity):
            if len(names) > 1:
                raise _ambiguous(actual, names, how)
            if names:
                return self.at(names[0]), ""
        where = f"{len(self.goldens):,} goldens below {self._prefix or 'this work tree'}"
        told = f" or the identity {_told(identity)}" if identity else ""
        return None, f"none of the {where} has its name{told}"

    def _identity(self, actual: Actual) -> Mapping[str, str]:
        path = os.path.relpath(actual.path, self._where.cwd).replace(os.sep, "/")
        while path.startswith("../"):
            path = path[3:]
        return identity_of(path, (*self._where.settings.actual, *self._where.cases))

    def _ways(self, actual: Actual, identity: Mapping[str, str]) -> Iterable[tuple[list[str], str]]:
        """Candidates, the surest way first; the result itself is never its own golden."""
        own = actual.path.resolve()
        others = [path for path in self.goldens if (self._root / path).resolve() != own]
        if actual.inside is not None:
            stem = actual.inside if actual.path.is_dir() else actual.inside.rpartition(".")[0]
            yield [path for path in others if path == actual.inside], "path"
            yield [path for path in others if path.rpartition(".")[0] == stem], "path"
        if identity:
            yield [path for path in others if self._fits(path, identity)], "identity"
        if actual.inside is not None and "/" in actual.inside:
            return  # its folders say which case it is; a name alone would be another case's
        name = actual.path.name
        named = [path for path in others if path.rpartition("/")[2] == name]
        if actual.path.is_dir():
            named += [path for path in others if Path(path).stem == actual.stem]
        yield [path for path in named if not self._contradicts(path, identity)], "file name"

    def _fits(self, path: str, identity: Mapping[str, str]) -> bool:
        own = identity_of(self._name(path), self._where.cases)
        return bool(own.keys() & identity.keys()) and not self._contradicts(path, identity)

    def _contradicts(self, path: str, identity: Mapping[str, str]) -> bool:
        own = identity_of(self._name(path), self._where.cases)
        return any(own[key] != identity[key] for key in own.keys() & identity.keys())


def _filled(pattern: str, identity: Mapping[str, str], actual: Actual) -> str:
    """The pattern with every placeholder filled in."""
    lacking = sorted(set(re.findall(r"\{([a-z_]+)\}", pattern)) - identity.keys())
    if lacking:
        options = " ".join(f"--identity {name}=…" for name in lacking)
        raise UsageError(
            f"expected {', '.join(lacking)} to fill in [check] golden = {pattern!r}, found"
            f" {_told(identity) or 'nothing'} in the path {actual.name}",
            next_command=f"karat check {actual.name} {options}",
        )
    filled = re.sub(r"\{([a-z_]+)\}", lambda match: identity[match[1]], pattern)
    if ".." in filled.split("/") or filled.startswith("/"):
        raise UsageError(
            f"expected a golden below the root, found {filled!r} from {_told(identity)}",
            next_command="karat config",
        )
    return filled


def _told(identity: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(identity.items()))


def _ambiguous(actual: Actual, names: Sequence[str], how: str) -> UsageError:
    shown = ", ".join(names[:_CANDIDATES_SHOWN])
    more = f" and {len(names) - _CANDIDATES_SHOWN} more" if len(names) > _CANDIDATES_SHOWN else ""
    return UsageError(
        f"expected one golden for {actual.name}, found {len(names)} by its {how}: {shown}{more}",
        next_command=f"karat check {actual.name} --golden {names[0]}",
    )


def _listed(root: Path) -> Iterable[str]:
    if _repository(root) is None:
        return _walk(root)
    out = git.run_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return {os.fsdecode(raw) for raw in out.split(b"\0") if raw}


def _repository(start: Path) -> Path | None:
    """The root of the work tree, if there is one and git can be asked; a golden that is named needs neither."""
    try:
        return git.find_root(start)
    except CannotVerify:
        return None


def _walk(root: Path) -> Iterable[str]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in files:
            yield os.path.relpath(Path(folder, name), root).replace(os.sep, "/")
