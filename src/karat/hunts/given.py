"""A hunt without a file: what a command line says, as settings. The journal keeps them, for a resume.

Words of the command that name files are understood from the folder it was typed in: what git tracks is taken from the checkout
that is under test, and anything else from where it lies; but a Python script of the repository that git does not track is
copied into the checkout, or what lies beside it here would be imported whatever commit is under test.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from karat.changepoints.series import Better
from karat.findings import CannotVerify, UsageError
from karat.hunts import settings as tables
from karat.hunts.hunt_toml import repository_around, validate
from karat.hunts.settings import HuntSettings, MetricSettings, PackageSettings, ProbeSettings
from karat.hunts.timelines.locks import read_sides
from karat.system.git import resolve, run_git

CODE = "code"  # What the repository is called.
# From the folder that comes first, files to the same places in the checkout.
_COPY = ("sh", "-c", 'for f; do mkdir -p "$(dirname "./$f")" && cp "$0/$f" "./$f" || exit; done')
_NUMBER = r"\D*?([-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|nan|inf))"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, and what to look at; without a value, seconds or a message, whether it fails."""

    command: tuple[str, ...]
    value: str | None = None
    seconds: bool = False
    crash: str | None = None
    better: Better | None = None
    build: str = ""
    timeout: str = "30 min"
    repeats: int = 1

    def metrics(self) -> tuple[MetricSettings, ...]:
        if self.seconds:
            return (MetricSettings(name="seconds", seconds=True, better=self.better),)
        if self.value is None:
            return ()
        pattern = self.value if re.search(r"(?<!\\)\((?!\?)", self.value) else f"{self.value}{_NUMBER}"
        name = self.value.strip(" :=") if re.fullmatch(r"[\w :=-]*\w[\w :=-]*", self.value) else "value"
        return (MetricSettings(name=name, regex=pattern, better=self.better),)


def split_settings(asked: Asked, folder: Path, *, code: str, packages: str, **more: Any) -> HuntSettings:
    """`karat hunt split`: old and new code with old and new packages."""
    old, new = read_sides(packages, folder)
    first, dots, last = code.partition("..")
    more |= _code(asked, folder, {"good": first or "HEAD", "bad": last or "HEAD" if dots else first or "HEAD"})
    split = {name: more.pop(name) for name in ("python", "index", "requires", "no_deps") if name in more}
    return _checked(name="split", stages=("split",), split=tables.SplitSettings(old=old, new=new, **split), **more)


def run_settings(
    asked: Asked, folder: Path, *, commits: str | None, releases: str | None, values: str | None
) -> HuntSettings:
    """`karat hunt -- CMD`: over commits, by default since the newest tag; over releases of a package; or over values."""
    if sum(each is not None for each in (commits, releases, values)) > 1:
        raise _wrong("expected one of --commits, --releases and --values, found several")
    if values is not None:
        texts = tuple(text.strip() for text in values.split(",") if text.strip())
        return _checked(name="values", stages=("values",), probe=_probe(asked), values=tables.ValueSettings(list=texts))
    if releases is not None:
        name, _, between = releases.partition("==")
        start, _, end = between.partition("..")
        packages = PackageSettings(name=name, start=start, end=end)
        return _checked(name=name, stages=("packages",), probe=_probe(asked), packages=packages)
    old, _, new = (commits or "").partition("..")
    more = _code(asked, folder, {"good": old or repository_around(folder)["GOOD"], "bad": new or "HEAD"})
    return _checked(name=repository_around(folder)["NAME"], stages=("commits",), **more)


def issue_settings(asked: Asked, folder: Path, said: Sequence[str], releases: str | None) -> HuntSettings:
    """`karat hunt from-issue`: between the two neighbours with the largest step; the newer one is the worse."""
    found = [re.fullmatch(r"(.+)=([-+]?[\d.]+(?:e[-+]?\d+)?)", text, re.IGNORECASE) for text in said]
    pairs = [(one[1], float(one[2])) for one in found if one]
    if len(pairs) < max(2, len(said)) or not asked.metrics():
        wanted = "two or more of WHEN=VALUE, such as 2023-08-24=577.2 v1.3=536.7"
        wanted = "--value PATTERN or --seconds, to read that value" if len(pairs) == len(said) > 1 else wanted
        raise _wrong(f"expected {wanted}, found {' '.join(said)!r}")
    (old, before), (new, after) = max(pairwise(pairs), key=lambda two: abs(two[1][1] - two[0][1]))
    asked = msgspec.structs.replace(asked, better=asked.better or ("higher" if after < before else "lower"))
    if releases is not None:
        return run_settings(asked, folder, commits=None, releases=f"{releases}=={old}..{new}", values=None)
    try:
        start, end = (dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC) for text in (old, new))
    except ValueError:
        return run_settings(asked, folder, commits=f"{old}..{new}", releases=None, values=None)
    # A day is all of it.
    ends = {"start": start, "end": end + dt.timedelta(seconds=86_399 * (len(new) <= len("2023-08-24")))}
    return _checked(name=repository_around(folder)["NAME"], stages=("commits",), **_code(asked, folder, ends))


def _wrong(said: str) -> UsageError:
    return UsageError(said, next_command="karat hunt --help")


def _checked(**named: Any) -> HuntSettings:
    settings = HuntSettings(**named)
    try:
        validate(settings)
    except UsageError as error:
        raise _wrong(str(error)) from error  # there is no file to edit
    return settings


def _probe(asked: Asked, words: Sequence[str] = ()) -> ProbeSettings:
    crash = None if asked.metrics() else tables.CrashSettings(pattern=asked.crash or "")
    limits: dict[str, Any] = {"timeout": asked.timeout, "repeats": asked.repeats}
    return ProbeSettings(command=tuple(words or asked.command), metrics=asked.metrics(), crash=crash, **limits)


def _code(asked: Asked, folder: Path, ends: Mapping[str, Any]) -> dict[str, Any]:
    """The repository of a folder, its ends (revisions or moments), and the probe in its checkout."""
    here = repository_around(folder)
    root = (folder / here["URL"]).resolve()
    found: dict[str, Any] = {}
    copied: list[str] = []
    for name, end in ends.items():
        commit = end if isinstance(end, dt.datetime) else resolve(root, end)
        if commit is None:
            said = f"expected a commit, branch or tag of {root}, found {end!r}"
            raise UsageError(said, next_command="git log --oneline -5")
        found[name] = commit if isinstance(commit, dt.datetime) else {CODE: commit}

    def word(text: str) -> str:
        path = (folder / text).resolve()
        script = path.suffix == ".py" and path.is_relative_to(root)
        if not path.is_file() or (Path(text).is_absolute() and not script):
            return text
        try:
            run_git(folder, "ls-files", "--error-unmatch", "--", text)
        except CannotVerify:
            if not script:
                return f"{{root}}/{text}"
            copied.append(os.path.relpath(path, root))
        return os.path.relpath(path, root)

    probe = _probe(asked, [word(text) for text in asked.command])
    return {
        "probe": msgspec.structs.replace(probe, setup=(*_COPY, f"{{root}}/{here['URL']}", *copied) if copied else ()),
        "repositories": (tables.RepositorySettings(name=CODE, url=here["URL"], branch=here["BRANCH"]),),
        "commits": tables.CheckoutSettings(build=asked.build, **found),
    }
