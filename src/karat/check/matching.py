"""Matching: which golden a result is to be checked against.

In: results, and what `--golden` says. Out: pairs, in which a side may be lacking; nothing is read
yet. A golden is found by its identity (case and environment), else by its file name; two that fit
are an error that names them, because to guess would be to check against the wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from karat.check.actuals import Actual, actuals_of, is_folder_of_results
from karat.check.advice import quoted
from karat.check.tree import GoldenAt, Tree, Where, repository, same_file
from karat.findings import UsageError
from karat.goldens.paths import narrow

__all__ = ["GoldenAt", "Pairing", "Where", "pair_up"]


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """One check to make; without `actual`, the run left nothing for this golden."""

    actual: Actual | None
    golden: GoldenAt | None
    why: str = ""
    """Where the lacking side was looked for in vain."""


def pair_up(words: Sequence[str], golden: str, where: Where) -> list[Pairing]:
    """The checks that the command line asks for."""
    if golden == "auto":
        return _asked_for(_all_found(words, Tree(where), where), where)
    if (where.cwd / golden).is_dir():
        return _asked_for(_against_folder(words, golden, where), where)
    at = _named(golden, where.cwd)
    for word in words:
        _another(word, at.path, where)
        if is_folder_of_results(word, where.cwd):
            if not at.path.exists():
                raise UsageError(
                    f"expected a folder of goldens at {golden}, found nothing there",
                    next_command=f"karat check {quoted(word)}",
                )
            raise UsageError(
                f"expected a result to check against the golden {golden}, found the folder {word}",
                next_command=f"karat check {quoted(word)} --golden {quoted(str(Path(golden).parent))}",
            )
    results = [actual for word in words for actual in actuals_of(word, where.cwd)]
    return [Pairing(actual=actual, golden=at) for actual in results]


def _another(word: str, path: Path, where: Where) -> None:
    """A file agrees with itself whatever it says, so that would be no check at all."""
    if not same_file(where.cwd / word, path):
        return
    root, here = repository(where.cwd), path.resolve()
    kept = root is not None and here.is_file() and here.is_relative_to(root.resolve())
    committed = f"HEAD:{here.relative_to(root.resolve()).as_posix()}" if root and kept else "auto"
    raise UsageError(
        f"expected a result and a golden, found {word} as both: nothing can differ from itself",
        next_command=f"karat check {quoted(word)} --golden {quoted(committed)}",
    )


def _named(word: str, cwd: Path) -> GoldenAt:
    """The golden that a word names: a file, or `REV:path` for one that git keeps."""
    path = cwd / word
    if ":" in word and not word.startswith("-") and not path.exists():
        return GoldenAt(name=word.partition(":")[2], path=cwd, revision=word)
    root = repository(cwd)
    if root is not None and path.resolve().is_relative_to(root.resolve()):
        # From the root of the repository, which is what rules and exemptions know.
        return GoldenAt(name=path.resolve().relative_to(root.resolve()).as_posix(), path=path)
    return GoldenAt(name=word, path=path)


def _all_found(words: Sequence[str], tree: Tree, where: Where) -> list[Pairing]:
    pairings = []
    owners: dict[str, Actual] = {}
    for word in words:
        for actual in actuals_of(word, where.cwd):
            at, why = tree.golden_of(actual)
            pairings.append(Pairing(actual=actual, golden=at, why=why))
            if at is not None and actual.inside is not None:
                _once(owners, at, actual, where)
    return pairings


def _once(owners: dict[str, Actual], at: GoldenAt, actual: Actual, where: Where) -> None:
    """Two results of one folder that claim one golden: at least one of them is another's."""
    other = owners.setdefault(at.name, actual)
    if other is not actual:
        raise UsageError(
            f"expected one result for the golden {at.name}, found {other.name} and {actual.name}",
            next_command=f"karat check {quoted(other.name)} --golden {quoted(where.from_here(at.path))}",
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


def _against_folder(words: Sequence[str], golden: str, where: Where) -> list[Pairing]:
    tree = Tree(where, where.cwd / golden, golden)
    for word in words:
        _another(word, where.cwd / golden, where)
    pairings = _all_found(words, tree, where)
    if not any(is_folder_of_results(word, where.cwd) for word in words):
        return pairings
    # Two folders are asked whether they agree, so what only the goldens have is missing.
    taken = {pairing.golden.name for pairing in pairings if pairing.golden}
    left = [at for at in map(tree.at, tree.goldens) if at.name not in taken]
    looked = " ".join(quoted(word) for word in words)
    return [*pairings, *(Pairing(actual=None, golden=at, why=looked) for at in left)]
