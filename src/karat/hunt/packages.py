"""Packages: released versions of a Python package as a timeline, each in an environment of its own.

In: [packages] of hunt.toml and what the package index lists. Out: a timeline whose points are versions in order. uv makes
the environments; what was installed beside the package is part of each point's identity.
"""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

import msgspec

from karat.engines.job import Command
from karat.findings import CannotVerify, Finding, Severity, UsageError
from karat.hunt.environments import Environment, find_uv
from karat.hunt.index_address import Address, find_address, plain_name
from karat.hunt.local_requirements import seen_from
from karat.hunt.package_index import files, pages
from karat.hunt.point import Point, Suspect, Window
from karat.hunt.releases import Release, changed, releases, same, within
from karat.hunt.settings import HuntSettings, PackageSettings, Stage
from karat.hunt.timeline import Place
from karat.report.words import count

_ASK = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
_NUMBERED = re.compile(r"(?:python|cpython@?)?(\d+)\.(\d+)(?:\.(\d+))?")
_CHANGES = ("changelog", "changes", "release notes", "releases", "what's new", "history")


class Packages:
    """Released versions, oldest first."""

    name = "packages"

    def __init__(
        self, settings: PackageSettings, found: Sequence[Release], address: Address, place: Place
    ) -> None:
        self._settings, self._address, self._place = settings, address, place
        self._uv = find_uv()
        self._releases = {release.version: release for release in found}
        self._pages: Mapping[str, str] | None = None
        self.points: Sequence[Point] = [_point(settings.name, release) for release in found]
        self.findings: Sequence[Finding] = ()

    def identity(self, point: Point) -> Mapping[str, str]:
        """The version; what else is in the environment is found out there."""
        return {f"package.{plain_name(self._settings.name)}": point.parts[self._settings.name]}

    def prepare(self, point: Point) -> Sequence[Command]:
        """Makes the environment, unless the slot has it."""
        env = {
            "UV_NO_PROGRESS": "1",
            "UV_PYTHON_DOWNLOADS": "never",
            # uv before 0.8 needs no word, and knows none, to replace a half environment.
            "UV_VENV_CLEAR": "1",
            "VIRTUAL_ENV": "",
        }
        if self._address.origin != "default":
            # In the environment, where a password is nobody's to read, and not on the command line.
            env["UV_DEFAULT_INDEX"] = self._address.url
        return self._environment(point).commands(self._uv, env)

    def command(self, point: Point, command: Command) -> Command:
        """The command with the version's environment first."""
        return self._environment(point).around(command, self._place.root)

    def ahead(self, points: Sequence[Point]) -> None:
        """Uv fetches quickly enough, and keeps what it has fetched."""

    def mixed(self, old: Point, new: Point, taken: frozenset[str]) -> Point | None:  # noqa: ARG002
        """One package has no parts to swap."""
        return None

    def suspects(self, old: Point, new: Point) -> Sequence[Suspect]:
        """The releases after the old one, and packages that came along in another version."""
        name, versions = self._settings.name, list(self._releases)
        between = versions[versions.index(old.id) + 1 : versions.index(new.id) + 1]
        moved = changed(self._installed(old), self._installed(new))
        return [
            *(
                Suspect(part=other, id=after or "gone", title=_moved(before, after))
                for other, (before, after) in moved.items()
                if other != plain_name(name)
            ),
            *(self._suspect(self._releases[version]) for version in between),
        ]  # fmt: skip

    def close(self) -> None:
        """Environments are kept for the next hunt."""

    def _suspect(self, release: Release) -> Suspect:
        name = self._settings.name
        if self._pages is None:
            self._pages = pages(self._address, name)
        named = [url for label, url in self._pages.items() if label.lower() in _CHANGES]
        own = f"https://pypi.org/project/{name}/{release.version}/" if self._address.is_pypi else ""
        return Suspect(
            part=name,
            id=release.version,
            title=f"changes: {named[0]}" if named and own else "",
            when=release.uploaded,
            link=own or (named[0] if named else ""),
        )

    def _environment(self, point: Point) -> Environment:
        settings, release = self._settings, self._releases[point.id]
        before = ""
        if release.complete is not None and settings.at_its_time:
            # uv takes what is older than this moment, and the release itself is wanted.
            moment = (release.complete + dt.timedelta(seconds=1)).astimezone(dt.UTC)
            before = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        return Environment(
            requirements=(
                ",".join(
                    [f"{settings.name}=={point.id}", *(f"!={other}" for other in release.local)]
                ),
                *settings.requires,
            ),
            python=settings.python or sys.executable,
            before=before,
        )

    def _installed(self, point: Point) -> Mapping[str, str]:
        return self._environment(point).installed(self._place.work)


def open_packages(
    settings: HuntSettings,
    stage: Stage,  # noqa: ARG001 - a factory's signature
    window: Window | None,
    place: Place,
) -> Packages:
    """The versions of [packages]; within a window only those between its ends."""
    wanted = settings.packages
    if wanted is None:
        raise UsageError("expected a table [packages], found none", next_command="edit hunt.toml")
    if find_spec("packaging") is None:
        raise UsageError(
            "the packages timeline needs the library packaging, found none",
            next_command="pip install 'karat[hunt]'",
        )
    local = tuple(seen_from(place.root, requirement) for requirement in wanted.requires)
    wanted = msgspec.structs.replace(wanted, requires=local)
    address = find_address(wanted.index)
    listed = releases(wanted.name, files(address, wanted.name), _python(wanted.python))
    start, end = (window.old.id, window.new.id) if window else (wanted.start, wanted.end)
    inside = within(listed, start, end)
    chosen = [r for r in inside if _is_wanted(r, wanted, (start, end))]
    if not chosen:
        raise UsageError(_none_chosen(wanted, listed, inside), next_command="edit hunt.toml")
    _timed(chosen, wanted, address)
    timeline = Packages(wanted, chosen, address, place)
    timeline.findings = [*_left_out(inside, chosen, wanted), *_shadowed(wanted.name, place)]
    return timeline


def _is_wanted(release: Release, wanted: PackageSettings, ends: tuple[str, str]) -> bool:
    if any(same(release.version, end) for end in ends):
        return True
    if release.prerelease and not wanted.prereleases:
        return False
    return release.yanked is None or wanted.yanked


def _none_chosen(
    wanted: PackageSettings, listed: Sequence[Release], inside: Sequence[Release]
) -> str:
    found = (
        f"{count(len(inside), 'version')}, all of them pre-releases or yanked" if inside else "none"
    )
    there = f"{listed[0].version} to {listed[-1].version}" if listed else "no versions at all"
    return (
        f"packages: expected versions of {wanted.name} from {wanted.start or 'the first'} to"
        f" {wanted.end or 'the last'}, found {found} (the index has {there})"
    )


def _timed(chosen: Sequence[Release], wanted: PackageSettings, address: Address) -> None:
    """Dependencies as they were need the time at which each version came."""
    unknown = next((r.version for r in chosen if r.complete is None), None)
    if wanted.at_its_time and unknown is not None:
        raise CannotVerify(
            f"packages.at_its_time: expected {address.shown} to say when {wanted.name} {unknown} was uploaded, found no time",
            next_command="edit hunt.toml",
        )


def _left_out(
    inside: Sequence[Release], chosen: Sequence[Release], wanted: PackageSettings
) -> list[Finding]:
    kept = {release.version for release in chosen}
    gone = [release for release in inside if release.version not in kept]
    early = sum(r.prerelease and not wanted.prereleases for r in gone)
    rows = (("pre-release", "prereleases", early), ("yanked version", "yanked", len(gone) - early))
    return [
        Finding(
            kind="points-missing",
            severity=Severity.INFO,
            message=f"{count(number, what)} of {wanted.name} left out; packages.{key} = true takes them",
        )
        for what, key, number in rows
        if number
    ]


def _shadowed(name: str, place: Place) -> list[Finding]:
    """A folder of the package's name beside hunt.toml, which Python would import instead of any release."""
    folder = place.root / name.replace("-", "_").lower()
    if not (folder / "__init__.py").is_file() and not folder.with_suffix(".py").is_file():
        return []
    return [
        Finding(
            kind="nothing-rebuilt",
            severity=Severity.WARN,
            path=folder.name,
            message=f"expected every release of {name} to be imported from its environment, found {folder.name} beside"
            " hunt.toml, which Python may import instead: then all versions are the same",
            next="edit hunt.toml",
        )
    ]


def _moved(before: str, after: str) -> str:
    if not after:
        return f"was {before}"
    return f"moved with it, from {before}" if before else "came with it"


def _point(name: str, release: Release) -> Point:
    return Point(
        id=release.version,
        label=release.version,
        when=release.uploaded,
        parts={name: release.version},
        missing=release.missing,
    )


def _python(wanted: str) -> tuple[int, ...]:
    """The version of the Python that environments are made with."""
    if not wanted:
        return sys.version_info[:3]
    named = _NUMBERED.fullmatch(wanted)
    if named:
        return tuple(int(part) for part in named.groups() if part is not None)
    try:
        done = subprocess.run((wanted, "-c", _ASK), check=True, capture_output=True, timeout=30)
        return tuple(int(part) for part in done.stdout.decode().strip().split("."))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise UsageError(
            f"packages.python: expected a version such as '3.11' or an interpreter, found {wanted!r}: {error}",
            next_command="uv python list",
        ) from error
