"""Which golden a result is to be checked against.

In: the words of a command line (a file, the folder of one run, or a folder of results and runs), and what `--golden`
says. Out: pairs, in which a side may be lacking; nothing is read yet. A golden is found by its path or its identity
(case and environment), else by its file name, each in an index that is made once: ten thousand results are not held
against ten thousand goldens one by one. Two that fit are an error that names them, because to guess would be to check
against the wrong one.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from karat.findings import UsageError, suggest
from karat.goldens.paths import DATA_GLOBS, PathFilter, files_below, identity_of, identity_text, narrow, walk
from karat.report.words import few
from karat.settings import CheckSettings
from karat.system import git
from karat.system.command import Command

_EVENTS = "tfevents"
_CANDIDATES_SHOWN = 6
_TABLE = ".csv"  # What may be put together from shards, by its name.
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
Identity: TypeAlias = Mapping[str, str]
_is_result = PathFilter(DATA_GLOBS)


class Actual(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    name: str  # As a person would write it.
    inside: str | None = None  # Its path below the folder that was named, if one was.


def actuals_of(word: str, cwd: Path) -> list[Actual]:
    """The results that one word names; one that does not exist is named all the same."""
    if is_folder_of_results(word, cwd):
        return list(_below(cwd / word, word))
    return [Actual(path=cwd / word, name=word)]


def is_folder_of_results(word: str, cwd: Path) -> bool:
    """Whether a word names a folder that is not itself a run: no event files lie in it."""
    if not (cwd / word).is_dir():
        return False
    _, folders, files = next(walk(cwd / word))
    return not any(_EVENTS in name for name in (*folders, *files))


def _below(root: Path, word: str) -> Iterator[Actual]:
    for here, folders, files in walk(root):
        if any(_EVENTS in name for name in files):
            folders.clear()
            yield _inside(here, root, word)
            continue
        for name in files:
            if _is_result(name):
                yield _inside(here / name, root, word)


def _inside(path: Path, root: Path, word: str) -> Actual:
    inside = str(path)[len(str(root)) :].lstrip(os.sep).replace(os.sep, "/")
    return Actual(path=path, name=f"{word.rstrip('/')}/{inside}", inside=inside)


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """What finding a golden takes, apart from the result."""

    cwd: Path
    globs: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    settings: CheckSettings = CheckSettings()
    identity: Identity = msgspec.field(default_factory=dict)
    patterns: tuple[str, ...] = ()  # Where the names of --identity may come from, besides `cases` and `settings`.
    mapped: Callable[[str, Identity], tuple[str | None, Identity]] | None = None
    """Path of a file that a CI left, and what else is known of it → the golden it is a result of, or its identity."""

    def from_here(self, path: Path) -> str:
        """A path as a command typed here would name it."""
        return min(self.relative(path), str(path), key=len)

    def relative(self, path: Path) -> str:
        """The way from here to a path."""
        text, below = str(path), f"{self.cwd}{os.sep}"
        # Most lie below, and relpath takes as long as reading a small golden.
        plain = text.startswith(below) and f"{os.sep}.." not in text
        return (text[len(below) :] if plain else os.path.relpath(path, self.cwd)).replace(os.sep, "/")


class GoldenAt(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # The path below the root of the goldens: what rules, exemptions and people call it.
    path: Path
    revision: str | None = None  # `REV:path` for a golden that git is to be asked for; `path` is then where to ask.


class Tree:
    """The goldens below one folder, listed when first asked for."""

    def __init__(self, where: Where, root: Path | None = None, word: str = "") -> None:
        # A word of --identity that no pattern knows would be left out of every comparison in silence.
        patterns = (*where.cases, *where.settings.actual, *where.patterns)
        known = sorted({name for pattern in patterns for name in _PLACEHOLDER.findall(pattern)})
        for key in where.identity:
            if key not in known:
                there = f"there are {', '.join(known)}" if known else "there are no patterns at all"
                raise UsageError(
                    f"expected --identity to name a placeholder of goldens.cases, check.actual or [refresh],"
                    f" found {key!r}{suggest(key, known)}; {there}",
                    next_command="karat config",
                )
        self._where = where
        self._named = root is not None
        self._root = root or git.work_tree_around(where.cwd) or where.cwd
        self._prefix = f"{word.rstrip('/')}/" if word else ""

    def at(self, path: str) -> GoldenAt:
        return GoldenAt(name=f"{self._below}{path}", path=self._root / path)

    @cached_property
    def _below(self) -> str:
        """The way from the root of the repository to this folder: rules and exemptions name goldens from there."""
        below = _from_root(self._root, self._where.cwd) if self._named else None
        return "" if below in {None, "."} else f"{below}/"

    @cached_property
    def _paths(self) -> list[str]:
        if self._named or git.work_tree_around(self._root) is None:
            return files_below(self._root)
        return sorted(git.work_tree_files(self._root))

    @cached_property
    def _data(self) -> list[str]:
        """Every data file of a folder that was named."""
        wanted = PathFilter(self._where.globs, self._where.exclude).by_extension()
        return [path for path in self._paths if wanted(path)] if self._named else []

    @cached_property
    def goldens(self) -> list[str]:
        """Every golden's path; in a folder that was named, every data file if none looks like one."""
        wanted = PathFilter(self._where.globs, self._where.exclude)
        return [path for path in self._paths if wanted(path)] or self._data

    @cached_property
    def _by_path(self) -> frozenset[str]:
        """In a named folder, a file at the very path of a result is its golden, whatever it is called."""
        return frozenset((*self.goldens, *self._data))

    @cached_property
    def _by_stem(self) -> Mapping[str, Sequence[str]]:
        return _grouped(self.goldens, lambda path: path.rpartition(".")[0])

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[str]]:
        return _grouped(self.goldens, lambda path: path.rpartition("/")[2])

    @cached_property
    def _by_file_stem(self) -> Mapping[str, Sequence[str]]:
        return _grouped(self.goldens, lambda path: Path(path).stem)

    @cached_property
    def _identities(self) -> Mapping[str, Identity]:
        return {path: identity_of(f"{self._below}{path}", self._where.cases) for path in self.goldens}

    @cached_property
    def _by_identity(self) -> IdentityIndex:
        return IdentityIndex(self._identities)

    def golden_of(self, actual: Actual) -> tuple[GoldenAt | None, str]:
        """The golden of a result; without one, what was looked for."""
        path = self._where.relative(actual.path)
        while path.startswith("../"):
            path = path[3:]
        read_off = identity_of(path, (*self._where.settings.actual, *self._where.cases))
        identity = {**read_off, **self._where.identity}
        for paths, how in self._ways(actual, identity):
            # The result itself is never its own golden.
            others = [path for path in paths if not same_file(self._root / path, actual.path)]
            if len(others) > 1:
                names = few([f"{self._below}{path}" for path in others], _CANDIDATES_SHOWN)
                raise UsageError(
                    f"expected one golden for {actual.name}, found {len(others)} by its {how}: {names}",
                    next_command=Command(
                        "karat", "check", actual.name, "--golden", self._where.from_here(self._root / others[0])
                    ),
                )
            if others:
                return self.at(others[0]), ""
        if self._where.mapped is not None:
            target, told_by_names = self._where.mapped(path, self._where.identity)
            alike = self._by_identity.fitting(told_by_names)
            if target is None and len(alike) == 1:
                return self.at(alike[0]), ""
            if target is not None and target.startswith(self._below):
                return self.at(target.removeprefix(self._below)), ""
        where = f"{len(self.goldens):,} goldens below {self._prefix or 'this work tree'}"
        said = f" or the identity {identity_text(identity)}" if identity else ""
        return None, f"none of the {where} has its name{said}"

    def _ways(self, actual: Actual, identity: Identity) -> Iterator[tuple[Sequence[str], str]]:
        """Candidates, the surest way first."""
        if actual.inside is not None:
            yield [actual.inside] if actual.inside in self._by_path else [], "path"
            stem = actual.inside if actual.path.is_dir() else actual.inside.rpartition(".")[0]
            yield self._by_stem.get(stem, ()), "path"
        if identity:
            paths = self._by_identity.fitting(identity)
            # Of several goldens, those called as the result is: its name tells what its folders do not.
            named = set(self._by_name.get(actual.path.name, ())) if len(paths) > 1 else set()
            others = [p for p in paths if not same_file(self._root / p, actual.path)] if named else []
            yield [path for path in others if path in named] or paths, "identity"
        if actual.inside is not None and "/" in actual.inside:
            return  # its folders say which case it is; a name alone would be another case's
        named_so = [*self._by_name.get(actual.path.name, ())]
        if actual.path.is_dir():
            named_so += self._by_file_stem.get(actual.path.name, ())
        # A golden whose path says something else of itself is another case's.
        own = self._identities
        yield (
            [p for p in named_so if all(own[p][key] == identity[key] for key in own[p].keys() & identity)],
            "file name",
        )


class IdentityIndex:
    """Goldens by what their paths say of them."""

    def __init__(self, read: Mapping[str, Identity]) -> None:
        # What says nothing of a second run is of the first.
        found = {path: {"again": "", **identity} for path, identity in read.items()}
        self._groups = _grouped(found, lambda path: frozenset(found[path]))
        self._found = found
        self._indexes: dict[tuple[frozenset[str], ...], Mapping[object, Sequence[str]]] = {}

    def fitting(self, identity: Identity) -> list[str]:
        """The goldens that share something with this identity, and contradict nothing."""
        paths: list[str] = []
        identity = {"again": "", **identity}
        for keys, members in self._groups.items():
            shared = keys.intersection(identity)
            if shared == {"again"}:
                continue
            if (keys, shared) not in self._indexes:
                values = {path: _values(self._found[path], shared) for path in members}
                self._indexes[keys, shared] = _grouped(members, values.__getitem__)
            paths += self._indexes[keys, shared].get(_values(identity, shared), ())
        return sorted(paths)


def _values(identity: Identity, keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(identity[key] for key in sorted(keys))


def _grouped(paths: Iterable[str], key: Callable[[str], Any]) -> Mapping[Any, Sequence[str]]:
    groups: dict[Any, list[str]] = defaultdict(list)
    for path in paths:
        groups[key(path)].append(path)
    return dict(groups)


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, by whatever links."""
    try:
        return os.path.samefile(one, other)  # noqa: PTH121 - a third of the time, for every result
    except OSError:
        return False


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """One check to make; without `actual`, the run left nothing for this golden."""

    actual: Actual | None
    golden: GoldenAt | None
    more: tuple[Actual, ...] = ()  # The other shards of the same table, or repeats of it: their rows tell.
    why: str = ""  # Why there is no golden.
    looked: tuple[str, ...] = ()  # Where a result was looked for in vain.


def pair_up(words: Sequence[str], golden: str, where: Where) -> list[Pairing]:
    """The checks that the command line asks for."""
    if golden == "auto":
        return _asked_for(_all_found(words, Tree(where), where), where)
    if (where.cwd / golden).is_dir():
        tree = Tree(where, where.cwd / golden, golden)
        for word in words:
            _another(word, where.cwd / golden, where)
        pairings = _all_found(words, tree, where)
        if any(is_folder_of_results(word, where.cwd) for word in words):
            # Two folders are asked whether they agree, so what only the goldens have is missing.
            taken = {pairing.golden.name for pairing in pairings if pairing.golden}
            left = (at for at in map(tree.at, tree.goldens) if at.name not in taken)
            pairings += [Pairing(actual=None, golden=at, looked=tuple(words)) for at in left]
        return _asked_for(pairings, where)
    at = _named(golden, where.cwd)
    for word in words:
        _another(word, at.path, where)
        if is_folder_of_results(word, where.cwd):
            said = f"expected a folder of goldens for the folder {word}, found {golden}, which is none"
            raise UsageError(said, next_command=Command("karat", "check", word))
    results = [actual for word in words for actual in actuals_of(word, where.cwd)]
    return _shards_together([Pairing(actual=actual, golden=at) for actual in results])


def _another(word: str, path: Path, where: Where) -> None:
    """A file agrees with itself whatever it says, so that would be no check at all."""
    if not same_file(where.cwd / word, path):
        return
    kept = _from_root(path, where.cwd) if path.is_file() else None
    committed = f"HEAD:{kept}" if kept else "auto"
    raise UsageError(
        f"expected a result and a golden, found {word} as both: nothing can differ from itself",
        next_command=Command("karat", "check", word, "--golden", committed),
    )


def _named(word: str, cwd: Path) -> GoldenAt:
    """The golden that a word names: a file, or `REV:path` for one that git keeps."""
    path = cwd / word
    if ":" in word and not word.startswith("-") and not path.exists():
        return GoldenAt(name=word.partition(":")[2], path=cwd, revision=word)
    return GoldenAt(name=_from_root(path, cwd) or word, path=path)


def _from_root(path: Path, cwd: Path) -> str | None:
    """A path from the root of the repository around `cwd`, as rules and exemptions name it; None outside of one."""
    here, root = path.resolve(), git.work_tree_around(cwd)
    inside = root is not None and here.is_relative_to(root := root.resolve())
    return here.relative_to(root).as_posix() if root is not None and inside else None


def _all_found(words: Sequence[str], tree: Tree, where: Where) -> list[Pairing]:
    pairings = []
    owners: dict[str, Actual] = {}
    for word in words:
        for actual in actuals_of(word, where.cwd):
            at, why = tree.golden_of(actual)
            pairings.append(Pairing(actual=actual, golden=at, why=why))
            if at is None or actual.inside is None:
                continue
            other = owners.setdefault(at.name, actual)
            if other is not actual and not at.name.endswith(_TABLE):
                # Two results of one folder claim one golden: at least one of them is another's.
                raise UsageError(
                    f"expected one result for the golden {at.name}, found {other.name} and {actual.name}",
                    next_command=Command("karat", "check", other.name, "--golden", where.from_here(at.path)),
                )
    return _shards_together(pairings)


def _shards_together(pairings: Sequence[Pairing]) -> list[Pairing]:
    """The same, with all results that are to be checked against one table in one pairing."""
    together: dict[object, Pairing] = {}
    for number, pairing in enumerate(pairings):
        at, actual = pairing.golden, pairing.actual
        shard = at is not None and at.name.endswith(_TABLE) and actual is not None and actual.path.is_file()
        key = at.name if at is not None and shard else number
        if (first := together.setdefault(key, pairing)) is not pairing and actual is not None:
            together[key] = msgspec.structs.replace(first, more=(*first.more, actual))
    return list(together.values())


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
