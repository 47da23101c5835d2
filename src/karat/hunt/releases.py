"""Releases: files of an index, as versions in order: which can be installed here, and which were asked for."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from karat.findings import UsageError
from karat.hunt.package_index import IndexFile

if TYPE_CHECKING:
    from packaging.tags import Tag
    from packaging.version import Version

_SETTLED = dt.timedelta(days=1)
"""Wheels of a release may come hours after its first file."""


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """One version, as far as an index tells."""

    version: str
    uploaded: dt.datetime | None
    """When its first file came."""
    complete: dt.datetime | None
    """When the last file of its first day came."""
    yanked: str | None
    prerelease: bool
    local: tuple[str, ...] = ()
    """Local versions of the same number, `1.0+cpu` of `1.0`: an installer takes them for it, and prefers them."""
    missing: str = ""
    """Why it cannot be installed on this Python; empty: it can."""


def releases(name: str, files: Iterable[IndexFile], python: tuple[int, ...]) -> list[Release]:
    """Every version, oldest first by its number."""
    grouped: dict[Version, list[IndexFile]] = {}
    for file in files:
        version = _version(name, file.filename)
        if version is not None:
            grouped.setdefault(version, []).append(file)
    local: dict[str, list[str]] = {}
    for version in sorted(grouped):
        if version.local is not None:
            local.setdefault(version.public, []).append(str(version))
    return [
        _release(version, grouped[version], python, tuple(local.get(str(version), ())))
        for version in sorted(grouped)
    ]


def within(listed: Sequence[Release], start: str, end: str) -> list[Release]:
    """Those from `start` to `end`, both inside; either may be open."""
    first, last = _named(start, "start"), _named(end, "end")
    if first is not None and last is not None and first > last:
        raise UsageError(
            f"packages: expected start up to end, found {start} and {end}",
            next_command="edit hunt.toml",
        )
    return [
        release
        for release in listed
        if (first is None or _parsed(release.version) >= first)
        and (last is None or _parsed(release.version) <= last)
    ]


def same(one: str, other: str) -> bool:
    """Whether two texts are one version: `1.0` and `1.0.0`."""
    return bool(one and other) and _named(one, "start") == _named(other, "end")


def _named(text: str, key: str) -> Version | None:
    from packaging.version import InvalidVersion  # noqa: PLC0415 - an extra

    try:
        return _parsed(text) if text else None
    except InvalidVersion as error:
        raise UsageError(
            f"packages.{key}: expected a version such as '1.26.0', found {text!r}",
            next_command="edit hunt.toml",
        ) from error


@cache
def _parsed(text: str) -> Version:
    from packaging.version import Version  # noqa: PLC0415 - an extra

    return Version(text)


def _version(name: str, filename: str) -> Version | None:
    """The version of a wheel or a source archive of this project; None of anything else."""
    from packaging import utils  # noqa: PLC0415 - an extra

    try:
        if filename.endswith(".whl"):
            theirs, version, _, _ = utils.parse_wheel_filename(filename)
        elif filename.endswith((".tar.gz", ".zip")):
            theirs, version = utils.parse_sdist_filename(filename)
        else:
            return None
    except (utils.InvalidWheelFilename, utils.InvalidSdistFilename):
        return None
    return version if theirs == utils.canonicalize_name(name) else None


def _release(
    version: Version, files: Sequence[IndexFile], python: tuple[int, ...], local: tuple[str, ...]
) -> Release:
    times = sorted(file.uploaded for file in files if file.uploaded is not None)
    early = [time for time in times if time <= times[0] + _SETTLED]
    reasons = [file.yanked for file in files]
    return Release(
        version=str(version),
        uploaded=times[0] if times else None,
        complete=early[-1] if early else None,
        yanked=next((r for r in reasons if r), "") if None not in reasons else None,
        prerelease=version.is_prerelease,
        local=local,
        missing=_why_not(files, python),
    )


def _why_not(files: Sequence[IndexFile], python: tuple[int, ...]) -> str:
    """Why no file of a release can be installed; empty if one can."""
    here = ".".join(map(str, python))
    fitting = [file for file in files if _takes(file.requires_python, here)]
    if not fitting:
        wanted = next((f.requires_python for f in files if f.requires_python), "")
        return f"needs Python {wanted}, and this is {here}"
    if any(not file.filename.endswith(".whl") or _fits(file.filename, python) for file in fitting):
        return ""
    return f"has no wheel for Python {here} on this machine, and no source archive"


def _takes(requires: str, here: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415 - an extra

    try:
        return SpecifierSet(requires).contains(here, prereleases=True)
    except InvalidSpecifier:
        return True  # what it means is the installer's to say


def _fits(filename: str, python: tuple[int, ...]) -> bool:
    from packaging.utils import parse_wheel_filename  # noqa: PLC0415 - an extra

    return not _tags(python[:2]).isdisjoint(parse_wheel_filename(filename)[3])


@cache
def _tags(python: tuple[int, ...]) -> frozenset[Tag]:
    from packaging.tags import compatible_tags, cpython_tags  # noqa: PLC0415 - an extra

    interpreter = f"cp{''.join(map(str, python))}"
    return frozenset([*cpython_tags(python), *compatible_tags(python, interpreter=interpreter)])


def changed(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Packages whose versions differ between two environments; nothing where one is not known."""
    if not old or not new:
        return {}
    return {
        name: (old.get(name, ""), new.get(name, ""))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    }
