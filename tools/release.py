"""Build HEAD's wheel and sdist into build/release, with an SBOM and a provenance file: `make release`.

Everything is built twice, in other folders and under another umask, time zone and hash seed, and the wheel once more from the
sdist; unless all are the same byte for byte, nothing is left. Times are those of the commit.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

import locked
from karat.system import signatures
from karat.system.ci import facts

ROOT = Path(__file__).parent.parent
BUILD_TOOLS = ("hatchling", "packaging", "pathspec", "pluggy", "trove-classifiers")
FOR_DEVELOPMENT = {"test", "dev", "browser"}


def main() -> int:
    parser = argparse.ArgumentParser(description="Build HEAD's wheel and sdist, with an SBOM and a provenance file.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--sign", type=Path, metavar="KEY", help="an SSH key to sign the provenance with")
    options = parser.parse_args()
    commit, epoch = git("log", "-1", "--format=%H %ct").decode().split()
    if git("status", "--porcelain", "--untracked-files=no"):
        print("release: expected all changes to be committed, found others\nnext: git status", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="karat-") as name:
        first, second, third = (Path(name) / one for one in ("one", "another folder", "from the sdist"))
        source = git("archive", "HEAD")
        made = build(first, source, epoch, umask=0o022, TZ="UTC", PYTHONHASHSEED="1")
        again = build(second, source, epoch, umask=0o077, TZ="Asia/Tokyo", PYTHONHASHSEED="2")
        (sdist,) = (data for file, data in made.items() if file.endswith(".tar.gz"))
        from_sdist = build(third, sdist, epoch, "-t", "wheel", umask=0o002, TZ="UTC", PYTHONHASHSEED="3")
    differ = sorted({file for other in (again, from_sdist) for file in other if made.get(file) != other[file]})
    if differ:
        said = f"expected the same bytes from every build, found others in {', '.join(differ)}"
        print(f"release: {said}\nnext: diffoscope, over two builds with SOURCE_DATE_EPOCH={epoch}", file=sys.stderr)
        return 1
    stem = next(file for file in made if file.endswith(".whl")).partition("-py3")[0]
    made[f"{stem}.cdx.json"] = encoded(sbom(stem.partition("-")[2], commit, int(epoch)))
    statement = encoded(provenance(made, commit, epoch))
    made[f"{stem}.provenance.json"] = statement
    if options.sign is not None:
        made[f"{stem}.provenance.json.sig"] = signatures.sign(statement, options.sign, "karat-release").encode()
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    for file, data in made.items():
        (options.out / file).write_bytes(data)
        print(f"{sha256(data)}  {file}")
    return 0


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout


def build(folder: Path, source: bytes, epoch: str, *words: str, umask: int, **environment: str) -> dict[str, bytes]:
    """The files that a source tree is built to."""
    with tarfile.open(fileobj=io.BytesIO(source)) as archive:
        archive.extractall(folder, filter="data")
    tops = list(folder.iterdir())
    top = tops[0] if len(tops) == 1 else folder
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder / "built"), *words]
    known = {**os.environ, "SOURCE_DATE_EPOCH": epoch, **environment}
    done = subprocess.run(command, cwd=top, env=known, umask=umask, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"release: hatchling could not build {top}:\n{done.stdout}{done.stderr}")
    return {file.name: file.read_bytes() for file in sorted((folder / "built").iterdir())}


def sbom(release: str, commit: str, epoch: int) -> dict[str, Any]:
    """CycloneDX: what karat needs (required), what its extras need (optional), and what it was tested and built with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = locked.packages(locked.FILE.read_text())
    extras = {name: items for name, items in project["optional-dependencies"].items() if name not in FOR_DEVELOPMENT}
    required = closure(packages, project["dependencies"])
    optional = closure(packages, (one for items in extras.values() for one in items))

    def scope(package: locked.LockedPackage) -> str:
        return "required" if package.name in required else "optional" if package.name in optional else "excluded"

    karat = f"pkg:pypi/karat@{release}"
    refs = [(one, f"pkg:pypi/{one.name}@{one.version}") for one in packages]
    own = [ref for one, ref in refs if "karat" in one.needed_by and scope(one) != "excluded"]
    needs = {karat: own, **{ref: [to for other, to in refs if one.name in other.needed_by] for one, ref in refs}}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, f"karat:{commit}").urn,
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "library",
                "bom-ref": karat,
                "name": "karat",
                "version": release,
                "purl": karat,
                "licenses": [{"license": {"id": project["license"]}}],
            },
        },
        "components": [
            {
                "type": "library",
                "bom-ref": ref,
                "name": one.name,
                "version": one.version,
                "purl": ref,
                "scope": scope(one),
                **({"properties": [{"name": "python:marker", "value": one.marker}]} if one.marker else {}),
            }
            for one, ref in refs
        ],
        "dependencies": [{"ref": ref, "dependsOn": sorted(to)} for ref, to in sorted(needs.items())],
    }


def closure(packages: Iterable[locked.LockedPackage], requirements: Iterable[str]) -> set[str]:
    """The names of locked packages that these need, themselves included."""
    known = list(packages)
    found, new = set[str](), {Requirement(one).name for one in requirements}
    while new:
        found |= new
        new = {one.name for one in known if found & set(one.needed_by)} - found
    return found


def provenance(made: Mapping[str, bytes], commit: str, epoch: str) -> dict[str, Any]:
    """An in-toto statement with SLSA's predicate: which bytes, from which commit, by what."""
    ci = facts(os.environ)
    said = {name: ci[name] for name in ("repository", "run", "attempt", "job") if name in ci}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": file, "digest": {"sha256": sha256(data)}} for file, data in sorted(made.items())],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:karat:make-release:1",
                "externalParameters": {"commit": commit, "SOURCE_DATE_EPOCH": epoch},
                "internalParameters": {"python": sys.version.split()[0], "ci": said},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": commit}},
                    {"name": "requirements/dev.txt", "digest": {"sha256": sha256(locked.FILE.read_bytes())}},
                    *({"uri": f"pkg:pypi/{name}@{version(name)}"} for name in BUILD_TOOLS),
                ],
            },
            "runDetails": {"builder": {"id": f"urn:karat:{'ci' if said else 'local'}"}},
        },
    }


def encoded(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=1).encode() + b"\n"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
