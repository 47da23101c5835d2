"""Selecting: the cases that were asked for, and what is said if there are none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from karat.bundles.manifest import Identity
from karat.findings import Finding, Severity, suggest
from karat.goldens.paths import glob_regex
from karat.replay.options import Choice


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
