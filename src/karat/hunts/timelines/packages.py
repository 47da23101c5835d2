"""Released versions of a Python package as a timeline, each in a uv environment of its own.

Three commands make an environment: an empty one, the installation, and a mark that it is whole. A slot is nobody else's, so
nobody sees a half of one; one that was killed half-way has no mark, and is made anew. What was installed beside the package is
part of each point's identity.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from karat.engines.job import JobCommand
from karat.findings import UsageError
from karat.hunts.model import Point, Suspect, Window
from karat.hunts.probe.jobs import print_versions
from karat.hunts.settings import HuntSettings, PackageSettings, Stage, mistake
from karat.hunts.timelines.timeline import Timeline, Workspace
from karat.net.package_index import IndexAddress, IndexFile, files, find_address, plain_name
from karat.report.words import count
from karat.system.hashes import sha256_hex
from karat.system.secrets import PACKAGE_INDEX

if TYPE_CHECKING:
    from packaging.tags import Tag
    from packaging.version import Version

_NUMBERED = re.compile(r"(?:python|cpython@?)?(\d+)\.(\d+)(?:\.(\d+))?")
_SECONDS = 1800.0
_MARK = "karat-is-whole"


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """One version, as far as an index tells."""

    version: str
    uploaded: dt.datetime | None  # When its first file came.
    yanked: str | None
    prerelease: bool
    local: tuple[str, ...] = ()
    """Local versions of the same number, `1.0+cpu` of `1.0`: an installer takes them for it, and prefers them."""
    missing: str = ""  # Why it cannot be installed on this Python; empty: it can.


_LONGEST_NAME = 255
"""Characters of a file's name: no disk takes longer ones, and a wheel's may stand for the product of three lists of tags."""


def releases(name: str, files: Iterable[IndexFile], python: tuple[int, ...]) -> list[Release]:
    """Every version, oldest first by its number."""
    from packaging import utils

    grouped: dict[Version, list[IndexFile]] = {}
    for file in files:
        # Wheels and source archives of this project; anything else is no release of it.
        with suppress(ValueError):  # packaging's own are such, and a number of thousands of digits is one
            if len(file.filename) > _LONGEST_NAME:
                continue
            if file.filename.endswith(".whl"):
                theirs, version, _, _ = utils.parse_wheel_filename(file.filename)
            elif file.filename.endswith((".tar.gz", ".zip")):
                theirs, version = utils.parse_sdist_filename(file.filename)
            else:
                continue
            if theirs == utils.canonicalize_name(name):
                grouped.setdefault(version, []).append(file)
    local: dict[str, list[str]] = {}
    for version in sorted(grouped):
        if version.local is not None:
            local.setdefault(version.public, []).append(str(version))
    found = []
    for version, own in sorted(grouped.items(), key=lambda item: item[0]):
        reasons = [file.yanked for file in own]
        release = Release(
            version=str(version),
            uploaded=min((file.uploaded for file in own if file.uploaded is not None), default=None),
            yanked=next((r for r in reasons if r), "") if None not in reasons else None,
            prerelease=version.is_prerelease,
            local=tuple(local.get(str(version), ())),
            missing=_why_not(own, python),
        )
        found.append(release)
    return found


def versions_between(listed: Sequence[Release], start: str, end: str) -> list[Release]:
    """Those from `start` to `end`, both inside; either may be open."""
    first, last = _parse_version(start, "start"), _parse_version(end, "end")
    if first is not None and last is not None and first > last:
        raise mistake(f"packages: expected start up to end, found {start} and {end}")
    numbered = [(_version_of(release.version), release) for release in listed]
    return [r for version, r in numbered if (first is None or version >= first) and (last is None or version <= last)]


def _parse_version(text: str, key: str) -> Version | None:
    try:
        return _version_of(text) if text else None
    except ValueError as error:  # packaging's own is such, and a number of thousands of digits is one
        raise mistake(f"packages.{key}: expected a version such as '1.26.0', found {text!r}") from error


@cache
def _version_of(text: str) -> Version:
    from packaging.version import Version

    return Version(text)


def _why_not(files: Sequence[IndexFile], python: tuple[int, ...]) -> str:
    """Why no file of a release can be installed; empty if one can."""
    from packaging.specifiers import SpecifierSet
    from packaging.utils import parse_wheel_filename

    here = ".".join(map(str, python))
    fitting = []
    for file in files:
        # What an invalid specifier means is the installer's to say.
        with suppress(ValueError):  # also a number of thousands of digits
            if not SpecifierSet(file.requires_python).contains(here, prereleases=True):
                continue
        fitting.append(file.filename)
    if not fitting:
        wanted = next((f.requires_python for f in files if f.requires_python), "")
        return f"needs Python {wanted}, and this is {here}"
    if any(not name.endswith(".whl") or _tags(python[:2]) & parse_wheel_filename(name)[3] for name in fitting):
        return ""
    return f"has no wheel for Python {here} on this machine, and no source archive"


@cache
def _tags(python: tuple[int, ...]) -> frozenset[Tag]:
    from packaging.tags import compatible_tags, cpython_tags

    interpreter = f"cp{''.join(map(str, python))}"
    return frozenset([*cpython_tags(python), *compatible_tags(python, interpreter=interpreter)])


def changed_packages(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Packages whose versions differ between two environments; nothing where one is not known."""
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name)) if old and new else ()
    return {name: (old.get(name, ""), new.get(name, "")) for name in names}


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment holds, and where it is in a slot."""

    requirements: tuple[str, ...]
    python: str
    alone: bool = False  # Without what the requirements need, whether they fit together or not.

    @property
    def key(self) -> str:
        """The same for the same contents."""
        return sha256_hex(json.dumps([self.requirements, self.python, self.alone]).encode())[:16]

    @property
    def folder(self) -> str:
        return f"@AREA@/environments/{self.key}"

    @property
    def program(self) -> str:
        return f"{self.folder}/bin/python"

    def commands(self, uv: Sequence[str], env: Mapping[str, str]) -> tuple[JobCommand, ...]:
        """What makes it, unless it is there, and tells what is in it."""
        mark = f"{self.folder}/{_MARK}"
        options = ("--no-deps",) if self.alone else ()
        install = (*uv, "pip", "install", "--python", self.program, *options, "--", *self.requirements)
        versions = (self.program, "-I", *print_versions())
        made = partial(JobCommand, role="prepare", env=env, timeout=_SECONDS, unless=("test", "-e", mark))
        return (
            made(name="environment", argv=(*uv, "venv", "--python", self.python, self.folder)),
            made(name="install", argv=install, passed=PACKAGE_INDEX),
            made(name="mark", argv=("touch", mark)),
            JobCommand(role="identify", name="versions", argv=versions, timeout=_SECONDS),
        )

    def around(self, command: JobCommand, cwd: str) -> JobCommand:
        """A command with this environment before all others, in that folder."""
        path = command.env.get("PATH", os.environ.get("PATH", os.defpath))
        first = self.program if command.argv[0] in {"python", "python3"} else command.argv[0]
        return msgspec.structs.replace(
            command,
            argv=(first, *command.argv[1:]),
            cwd=cwd,
            env={
                # Empty is unset for these two: what they name would be imported before what is installed.
                "PYTHONPATH": "",
                "PYTHONHOME": "",
                **command.env,
                "VIRTUAL_ENV": self.folder,
                "PATH": f"{self.folder}/bin{os.pathsep}{path}",
            },
        )

    def installed(self, work: Path) -> Mapping[str, str]:
        """Package → version, as any slot below `work` has it; nothing where none has."""
        for mark in sorted(work.glob(f"*/environments/{self.key}/{_MARK}")):
            found = mark.parent.glob("lib/python*/site-packages/*.dist-info")
            names = [path.name.removesuffix(".dist-info").rpartition("-") for path in found]
            return {plain_name(name): version for name, _, version in names}
        return {}


def find_uv() -> tuple[str, ...]:
    if shutil.which("uv"):
        return ("uv",)
    if importlib.util.find_spec("uv") is not None:
        return (sys.executable, "-P", "-m", "uv")
    raise _not_installed("uv", "is neither on the PATH nor installed beside karat")


def uv_variables(address: IndexAddress) -> dict[str, str]:
    """What uv is told by its environment, where a password is nobody's to read, and not on the command line."""
    index = {} if address.origin == "default" else {"UV_DEFAULT_INDEX": address.url}
    # uv before 0.8 needs no word, and knows none, to replace a half environment.
    alone = {"UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_VENV_CLEAR": "1", "VIRTUAL_ENV": ""}
    return {**alone, **index}


def _not_installed(what: str, found: str) -> UsageError:
    said = f"the packages timeline needs {what}, which {found}"
    return UsageError(said, next_command="pip install 'karat[hunt]'")


class Packages(Timeline):
    """Released versions, oldest first."""

    name = "packages"

    def __init__(self, own: PackageSettings, found: Sequence[Release], address: IndexAddress, place: Workspace) -> None:
        self._settings, self._address, self._place = own, address, place
        self._uv = find_uv()
        self._releases = {release.version: release for release in found}
        self.points = [
            Point(
                id=r.version,
                label=r.version,
                when=r.uploaded,
                parts={own.name: r.version},
                missing=r.missing,
                # More comes with 1.5.0 than with 1.5.1.
                weight=0.5 if re.match(r"\d+\.\d+\.0*[1-9]", r.version) else 1.0,
            )
            for r in found
        ]

    def identity(self, point: Point) -> Mapping[str, str]:
        """The version; what else is in the environment is found out there."""
        return {f"package.{plain_name(self._settings.name)}": point.parts[self._settings.name]}

    def prepare(self, point: Point) -> Sequence[JobCommand]:
        return self._environment(point).commands(self._uv, uv_variables(self._address))

    def command(self, point: Point, command: JobCommand) -> JobCommand:
        return self._environment(point).around(command, str(self._place.root))

    def suspects(self, old: Point, new: Point) -> Sequence[Suspect]:
        """The releases after the old one, and packages that came along in another version."""
        name, versions = self._settings.name, list(self._releases)
        installed = (self._environment(point).installed(self._place.work) for point in (old, new))
        found = []
        for other, (before, after) in changed_packages(*installed).items():
            title = f"was {before}" if not after else f"moved with it, from {before}" if before else "came with it"
            if other != plain_name(name):
                found.append(Suspect(part=other, id=after or "gone", title=title))
        for version in versions[versions.index(old.id) + 1 : versions.index(new.id) + 1]:
            link = f"https://pypi.org/project/{name}/{version}/" if self._address.is_pypi else ""
            found.append(Suspect(part=name, id=version, when=self._releases[version].uploaded, link=link))
        return found

    def _environment(self, point: Point) -> Environment:
        settings, release = self._settings, self._releases[point.id]
        own = ",".join([f"{settings.name}=={point.id}", *(f"!={other}" for other in release.local)])
        python = settings.python or sys.executable
        return Environment(requirements=(own, *settings.requires), python=python)


def open_packages(settings: HuntSettings, _stage: Stage, window: Window | None, place: Workspace) -> Packages:
    """The versions of [packages]; within a window only those between its ends."""
    wanted = settings.packages
    if wanted is None:
        raise mistake("expected a table [packages], found none")
    if importlib.util.find_spec("packaging") is None:
        raise _not_installed("packaging", "is not installed")
    address = find_address(wanted.index)
    listed = releases(wanted.name, files(address, wanted.name), _python(wanted.python))
    start, end = (window.old.id, window.new.id) if window else (wanted.start, wanted.end)
    inside = versions_between(listed, start, end)
    named = {_version_of(text) for text in (start, end) if text}  # `1.0` is `1.0.0`
    usual = {r.version for r in inside if (wanted.prereleases or not r.prerelease) and r.yanked is None}
    chosen = [r for r in inside if r.version in usual or _version_of(r.version) in named]
    if not chosen:
        wide = f"{wanted.name} from {wanted.start or 'the first'} to {wanted.end or 'the last'}"
        found = f"{count(len(inside), 'version')}, all of them pre-releases or yanked" if inside else "none"
        there = f"{listed[0].version} to {listed[-1].version}" if listed else "no versions at all"
        raise mistake(f"packages: expected versions of {wide}, found {found} (the index has {there})")
    notes = []
    gone = [release for release in inside if release not in chosen]
    if early := sum(r.prerelease and not wanted.prereleases for r in gone):
        said = f"{count(early, 'pre-release')} of {wanted.name} left out"
        notes.append(f"{said}; packages.prereleases = true includes them")
    if yanked := len(gone) - early:
        notes.append(f"{count(yanked, 'yanked version')} of {wanted.name} left out; start and end may name one")
    # A folder of the package's name beside hunt.toml, which Python would import instead of any release.
    folder = place.root / wanted.name.replace("-", "_").lower()
    if (folder / "__init__.py").is_file() or folder.with_suffix(".py").is_file():
        said = f"expected every release of {wanted.name} to be imported from its environment, found {folder.name}"
        why = "which Python may import instead: then all versions measure the same code"
        notes.append(f"{said} beside hunt.toml, {why}")
    timeline = Packages(wanted, chosen, address, place)
    timeline.notes = notes
    return timeline


def _python(wanted: str) -> tuple[int, ...]:
    if not wanted:
        return sys.version_info[:3]
    if named := _NUMBERED.fullmatch(wanted):
        return tuple(int(part) for part in named.groups() if part is not None)
    try:
        ask = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
        done = subprocess.run((wanted, "-c", ask), check=True, capture_output=True, timeout=30)
        return tuple(int(part) for part in done.stdout.decode().strip().split("."))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        said = f"packages.python: expected a version such as '3.11' or an interpreter, found {wanted!r}: {error}"
        raise UsageError(said, next_command="uv python list") from error
