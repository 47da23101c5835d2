"""Hold the locked versions against published advisories: `make audit`, or `make audit ADVISORIES=all.zip` without a network.

The advisories are osv.dev's export for PyPI. Exit code 0: none is about a locked version; 1: some are; 3: not audited.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
from packaging.version import InvalidVersion, Version

import locked

SOURCE = "https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip"
DOWNLOADED = Path("build") / "osv-pypi.zip"


def main(words: list[str]) -> int:
    file = Path(words[0]) if words else DOWNLOADED
    try:
        packages = locked.packages(locked.FILE.read_text())
    except (OSError, ValueError) as error:
        return not_audited(f"expected the locked packages of {locked.FILE}, but: {error}", "make lock")
    try:
        if not words:
            download(file)
        advisories = list(read(file))
    except (OSError, ValueError, httpx.HTTPError, zipfile.BadZipFile) as error:
        return not_audited(
            f"expected the advisories of {words[0] if words else SOURCE}, but: {error or type(error).__name__}"
        )
    if not advisories:
        return not_audited(f"expected advisories about PyPI's packages in {file}, found none")
    found = sorted(
        f"{package.name} {package.version}: {one['id']}: {one.get('summary') or 'no summary'}"
        for package in packages
        for one in advisories
        if concerns(one, package.name, package.version)
    )
    print(*found, sep="\n", end="\n" if found else "")
    newest = max(str(one.get("modified", "")) for one in advisories)[:10]
    print(f"{len(packages)} locked packages, {len(advisories):,} advisories up to {newest}: {len(found)} concern them")
    if found:
        print("next: make lock ARGS='--upgrade-package NAME'", file=sys.stderr)
    return 1 if found else 0


def not_audited(why: str, then: str = f"curl -LO {SOURCE} && make audit ADVISORIES=all.zip") -> int:
    print(f"NOT AUDITED: {why}\nnext: {then}", file=sys.stderr)
    return 3


def download(file: Path) -> None:
    file.parent.mkdir(exist_ok=True)
    with httpx.stream("GET", SOURCE, timeout=httpx.Timeout(30, connect=10)) as answer, file.open("wb") as made:
        answer.raise_for_status()
        for block in answer.iter_bytes():
            made.write(block)


def read(file: Path) -> Iterator[Mapping[str, Any]]:
    """The advisories that were not withdrawn."""
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            if name.endswith(".json"):
                one = json.loads(archive.read(name))
                if "withdrawn" not in one:
                    yield one


def concerns(advisory: Mapping[str, Any], name: str, version: str) -> bool:
    """Whether an advisory is about this version: it lists it, or gives a range around it."""
    for affected in advisory.get("affected", ()):
        package = affected.get("package", {})
        if package.get("ecosystem") == "PyPI" and canonical(package.get("name", "")) == canonical(name):
            if version in affected.get("versions", ()):
                return True
            ranges = (one for one in affected.get("ranges", ()) if one.get("type") == "ECOSYSTEM")
            if any(within(one.get("events", ()), Version(version)) for one in ranges):
                return True
    return False


def within(events: list[Mapping[str, str]], version: Version) -> bool:
    """Whether a range, as events in their order, holds a version; one that cannot be read may."""
    inside = False
    try:
        for event in events:
            if "introduced" in event:
                inside = inside or event["introduced"] == "0" or version >= Version(event["introduced"])
            elif "fixed" in event:
                inside = inside and version < Version(event["fixed"])
            elif "last_affected" in event:
                inside = inside and version <= Version(event["last_affected"])
    except InvalidVersion:
        return True
    return inside


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
