"""Golden paths: globs that find goldens, and patterns that read a case's identity off a path.

A glob knows `*` (within a folder), `**` (any folders), `?` and `{a,b}`. A pattern is a path with
`{name}` placeholders, such as `{model}/{case}/golden_values_{lane}_{platform}.json`; a placeholder
takes as little as it can, and never a slash.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import takewhile
from pathlib import Path

from karat.findings import CannotVerify, UsageError
from karat.system.command import Command
from karat.system.foreign import wildcards
from karat.system.foreign.wildcards import Step

DEFAULT_GLOBS = (
    "**/golden_values*.json",
    "**/*golden*.{json,jsonl,csv,txt}",
    "**/{golden,goldens,golden_values}/**/*.{json,jsonl,csv,txt}",
    "**/ci_expected_accuracy/**/*.csv",
    "**/*expected_results*.csv",
    "**/expected_ci_*.csv",
)
"""Where goldens are looked for without a configuration."""

DATA_GLOBS = ("**/*.{json,jsonl,csv,txt}",)  # Every file that could be one: used for folders named on the command line.

_NEVER = frozenset({"goldens.lock.json", "karat-manifest.json", "karat.toml"})
SAMPLES = ".samples.json"
"""karat's own files; never goldens. Samples are the repeats that `karat record` keeps beside a golden."""

_WILDCARDS: dict[str, tuple[str, Step]] = {
    "**/": ("(?:.*/)?", wildcards.any_folders),
    "**": (".*", wildcards.any_number),
    "*": ("[^/]*", wildcards.within_folder),
    "?": ("[^/]", wildcards.one(re.compile("[^/]"))),
}
_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|\{[^{}/]*\}|[^*?{]+|.", re.DOTALL)
_LONGEST, _LONGEST_NAME = 4096, 255
"""Characters of a path, and of a name in it: no file system has longer ones, but an archive may."""
_FEW = 3
"""Wildcards up to which a regular expression is quick on a path of ordinary length; it may try each at every place."""


class Globs:
    """Says whether a path fits one of some globs: by a regular expression, where that cannot take long."""

    def __init__(self, patterns: Iterable[str]) -> None:
        quick, self._all, self._others = [], [], []
        for pattern in patterns:
            regex, steps = "", []
            folders = stars = braces = 0
            for token in _TOKEN.findall(pattern):
                choices = token[1:-1].split(",") if token[0] == "{" and token[-1] == "}" else [token]
                plain = f"(?:{'|'.join(map(re.escape, choices))})", wildcards.words(*choices)
                expression, step = _WILDCARDS.get(token, plain)
                regex += expression
                steps.append(step)
                folders += token.startswith("**/")
                stars += token in {"*", "**"}
                braces += len(choices) > 1
            self._all.append(steps)
            if stars >= _FEW or stars + folders > _FEW or braces > _FEW:
                self._others.append(steps)
            else:
                quick.append(f"(?:{regex})")
        # One alternation: a big repository has many paths to ask about.
        self._quick = re.compile("|".join(quick) or r"(?!)", re.DOTALL)

    def fullmatch(self, path: str) -> bool:
        if len(path) <= _LONGEST_NAME and self._quick.fullmatch(path):
            return True
        slow = self._others if len(path) <= _LONGEST_NAME else self._all
        return any(wildcards.fits(steps, path) for steps in slow)


@cache
def glob_matcher(pattern: str) -> Globs:
    return Globs([pattern])


class PathFilter:
    """Says whether a path is a golden that was asked for: matches a glob and no exclusion."""

    def __init__(self, globs: Iterable[str], exclude: Iterable[str] = (), only: Iterable[str] = ()) -> None:
        self._wanted = Globs(globs)
        self._unwanted = Globs(exclude)
        self._only = tuple(only)

    def __call__(self, path: str) -> bool:
        return self.covers(path) and (not self._only or narrow(path, self._only))

    def covers(self, path: str) -> bool:
        """Whether a path is a golden, asked for or not."""
        if not self._wanted.fullmatch(path) or self._unwanted.fullmatch(path):
            return False
        name = path.rpartition("/")[2]
        return name not in _NEVER and not name.endswith(SAMPLES)

    def asked_for(self, path: str) -> bool:
        """Whether a file that the user named is not left out by `only`."""
        return narrow(path, self._only)

    def by_extension(self) -> PathFilter:
        """The same, but for every file that could be a golden."""
        other = PathFilter(DATA_GLOBS, (), self._only)
        other._unwanted = self._unwanted
        return other


def narrow(path: str, only: Iterable[str]) -> bool:
    """Says whether a path is one of those asked for: a glob, a folder anywhere in it, or its end."""
    wanted = list(only)
    return not wanted or any(
        path == item
        or path.startswith(f"{item.rstrip('/')}/")
        or any(glob_matcher(form).fullmatch(path) for form in (item, f"**/{item}", f"**/{item.rstrip('/')}/**"))
        for item in wanted
    )


_TRIES = 400_000  # Of places for placeholders: beyond it, a pattern that repeats its names may take for ever.


class CasePattern:
    """Reads an identity off a path; `forms` has what single placeholders take."""

    def __init__(self, pattern: str, forms: Mapping[str, str]) -> None:
        self._pattern = pattern
        self._forms = {name: re.compile(form) for name, form in forms.items()}
        self._parts = [part for part in re.split(r"(\{[a-z_]+\}|\*\*/)", pattern) if part]
        self._names = [part[1:-1] if re.fullmatch(r"\{[a-z_]+\}", part) else "" for part in self._parts]
        self._repeated = [sorted({*self._names[:n]} & {*self._names[n:]} - {""}) for n in range(len(self._names))]
        seen: set[str] = set()
        out = []
        for part, name in zip(self._parts, self._names, strict=True):
            if part == "**/":
                out.append("(?:[^/]+/)*")
            elif name:
                out.append(f"(?P={name})" if name in seen else f"(?P<{name}>{forms.get(name, '[^/]+?')})")
                seen.add(name)
            else:
                out.append(re.escape(part))
        self._regex = re.compile("".join(out))
        # The last placeholder before a slash has one place to end; any other may be tried everywhere.
        loose = sum(max(0, len(re.findall(r"\{(?!again\})[a-z_]+\}", folder)) - 1) for folder in pattern.split("/"))
        self._quick = loose + pattern.count("**/") < _FEW

    def match(self, path: str) -> dict[str, str] | None:
        """Placeholder → what it takes; None where the path does not fit."""
        if len(path) > _LONGEST or any(len(name) > _LONGEST_NAME for name in path.split("/")):
            return None
        if self._quick and len(path) <= _LONGEST_NAME:
            found = self._regex.fullmatch(path)
            return found.groupdict() if found else None
        taken: dict[str, str] = {}
        failed: set[tuple[object, ...]] = set()
        tries = iter(range(_TRIES))

        def rest_fits(part: int, at: int) -> bool:
            """As the expression would, but nothing is tried twice."""
            if part == len(self._parts):
                return at == len(path)
            name = self._names[part]
            state = (part, at, *((known, taken[known]) for known in self._repeated[part] if known in taken))
            new = bool(name) and name not in taken
            for end in () if state in failed else self._ends(path, part, at, taken):
                if next(tries, None) is None:
                    raise UsageError(
                        f"expected a pattern that is held against a path in a moment, found {self._pattern!r}, which "
                        f"may fit in too many ways: {path[:80]!r}; use fewer placeholders between two slashes",
                        next_command="karat config --show-origin",
                    )
                if new:
                    taken[name] = path[at:end]
                if rest_fits(part + 1, end):
                    return True
                if new:
                    del taken[name]
            failed.add(state)
            return False

        return taken if rest_fits(0, 0) else None

    def _ends(self, path: str, part: int, at: int, taken: Mapping[str, str]) -> Iterable[int]:
        """Where a part that begins there may end, in the order in which it is tried."""
        name = self._names[part]
        slash = path.find("/", at)
        stop = len(path) if slash < 0 else slash
        if name and name not in taken:
            if name not in self._forms:
                return range(at + 1, stop + 1)
            form = self._forms[name]
            longest = form.match(path, at, stop)
            ends = range(longest.end(), at - 1, -1) if longest else ()
            return (end for end in ends if form.fullmatch(path, at, end))
        if self._parts[part] == "**/":
            return reversed(wildcards.named_folders(path, (at,)))
        word = taken.get(name, self._parts[part])
        return (at + len(word),) if path.startswith(word, at) else ()


@cache
def case_pattern(pattern: str, forms: tuple[tuple[str, str], ...] = ()) -> CasePattern:
    return CasePattern(pattern, dict(forms))


AGAIN = "(?:_[0-9]+(?:st|nd|rd|th))?"
"""What `{again}` takes: `_2nd`, `_3rd`, … or nothing, which a test that runs twice puts behind its file's name."""
_SECOND_RUN = re.compile(rf"(.*?[^_])({AGAIN[3:-2]})")


def identity_of(path: str, patterns: Iterable[str]) -> Mapping[str, str]:
    """The identity that the first fitting pattern reads off a path; empty without one."""
    for pattern in patterns:
        if (found := case_pattern(pattern, (("again", AGAIN),)).match(path)) is not None:
            # Whatever the pattern: what follows a platform is no part of it.
            if second := _SECOND_RUN.fullmatch(found.get("platform", "")):
                found["platform"], found["again"] = second.groups()
            return {name: value for name, value in found.items() if value}
    return {}


def identity_text(identity: Mapping[str, str]) -> str:
    """`case=a, platform=b`."""
    return ", ".join(f"{name}={value}" for name, value in sorted(identity.items()))


def walk(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Every folder from a root on with its folders and files, sorted and without git's own.

    Folders that the caller takes out of the list are not entered. CannotVerify for one that cannot be listed.
    """

    def unreadable(error: OSError) -> None:
        said = f"expected to list {error.filename}, but: {error.strerror}"
        raise CannotVerify(said, next_command=Command("ls", "-ld", str(error.filename))) from error

    for folder, names, files in os.walk(root, onerror=unreadable):
        names[:] = sorted(name for name in names if name != ".git")
        yield Path(folder), names, sorted(files)


def files_below(root: Path) -> list[str]:
    """Every file below a folder but git's own, as a path from there, sorted."""
    return sorted((folder / name).relative_to(root).as_posix() for folder, _, names in walk(root) for name in names)


def common_root(paths: Iterable[str]) -> str:
    """The deepest folder that all paths share; empty for none."""
    folders = [path.split("/")[:-1] for path in paths]
    shared = takewhile(lambda names: len(set(names)) == 1, zip(*folders, strict=False))
    return "/".join(names[0] for names in shared)
