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

from karat.findings import CannotVerify
from karat.system.command import Command

DEFAULT_GLOBS = (
    "**/golden_values*.json",
    "**/*golden*.{json,jsonl,csv,txt}",
    "**/{golden,goldens,golden_values}/**/*.{json,jsonl,csv,txt}",
    "**/ci_expected_accuracy/**/*.csv",
    "**/*expected_results*.csv",
    "**/expected_ci_*.csv",
)
"""Where goldens are looked for without a configuration."""

DATA_GLOBS = ("**/*.{json,jsonl,csv,txt}",)
"""Every file that could be one: used for folders named on the command line."""

_NEVER = frozenset({"goldens.lock.json", "karat-manifest.json", "karat.toml"})
SAMPLES = ".samples.json"
"""karat's own files; never goldens. Samples are the repeats that `karat record` keeps beside a golden."""

_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|\{[^{}/]*\}|.", re.DOTALL)


@cache
def glob_regex(pattern: str) -> re.Pattern[str]:
    parts = []
    for token in _TOKEN.findall(pattern):
        if token.startswith("{") and token.endswith("}"):
            parts.append(f"(?:{'|'.join(map(re.escape, token[1:-1].split(',')))})")
        else:
            parts.append(_WILDCARDS.get(token) or re.escape(token))
    return re.compile("".join(parts), re.DOTALL)


class PathFilter:
    """Says whether a path is a golden that was asked for: matches a glob and no exclusion."""

    def __init__(self, globs: Iterable[str], exclude: Iterable[str] = (), only: Iterable[str] = ()) -> None:
        self._wanted = _any_of(globs)
        self._unwanted = _any_of(exclude)
        self._only = tuple(only)

    def __call__(self, path: str) -> bool:
        return self.covers(path) and narrow(path, self._only)

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


def _any_of(globs: Iterable[str]) -> re.Pattern[str]:
    # One alternation: a big repository has many paths to ask about.
    return re.compile("|".join(f"(?:{glob_regex(g).pattern})" for g in globs) or r"(?!)", re.DOTALL)


def narrow(path: str, only: Iterable[str]) -> bool:
    """Says whether a path is one of those asked for: a glob, a folder anywhere in it, or its end."""
    wanted = list(only)
    return not wanted or any(
        path == item
        or path.startswith(f"{item.rstrip('/')}/")
        or any(glob_regex(form).fullmatch(path) for form in (item, f"**/{item}", f"**/{item.rstrip('/')}/**"))
        for item in wanted
    )


@cache
def pattern_regex(pattern: str, forms: tuple[tuple[str, str], ...] = ()) -> re.Pattern[str]:
    """The regular expression of a pattern; `forms` has what single placeholders take."""
    forms_by_name = dict(forms)
    seen: set[str] = set()
    out = []
    for part in re.split(r"(\{[a-z_]+\}|\*\*/)", pattern):
        name = part[1:-1]
        if part == "**/":
            out.append("(?:[^/]+/)*")
        elif re.fullmatch(r"\{[a-z_]+\}", part):
            form = forms_by_name.get(name, "[^/]+?")
            out.append(f"(?P={name})" if name in seen else f"(?P<{name}>{form})")
            seen.add(name)
        else:
            out.append(re.escape(part))
    return re.compile("".join(out))


def identity_of(path: str, patterns: Iterable[str]) -> Mapping[str, str]:
    """The identity that the first fitting pattern reads off a path; empty without one."""
    for pattern in patterns:
        match = pattern_regex(pattern).fullmatch(path)
        if match:
            return match.groupdict()
    return {}


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


def common_root(paths: Iterable[str]) -> str:
    """The deepest folder that all paths share; empty for none."""
    folders = [path.split("/")[:-1] for path in paths]
    shared = takewhile(lambda names: len(set(names)) == 1, zip(*folders, strict=False))
    return "/".join(names[0] for names in shared)
