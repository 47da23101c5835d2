"""What karat is built, tested and released with: the lock, the release and the audit, as `make` runs them."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import locked
from factories.policy_ranges import key
from karat.system import signatures

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKED = locked.packages(locked.FILE.read_text())


def wanted() -> list[Requirement]:
    """All that `make` installs by name, extras of karat's own followed."""
    extras = PYPROJECT["project"]["optional-dependencies"]
    found = [*PYPROJECT["project"]["dependencies"], *PYPROJECT["build-system"]["requires"]]
    found += PYPROJECT["dependency-groups"]["build"]
    todo, seen = ["dev"], set()
    while todo:
        name = todo.pop()
        seen.add(name)
        for text in extras[name]:
            one = Requirement(text)
            if one.name == "karat":
                todo += sorted(one.extras - seen)
            else:
                found.append(text)
    return [Requirement(text) for text in found]


@pytest.mark.parametrize("requirement", wanted(), ids=str)
def test_the_lock_has_what_pyproject_asks_for(requirement: Requirement) -> None:
    versions = [one.version for one in LOCKED if canonicalize_name(one.name) == canonicalize_name(requirement.name)]
    assert versions, "run: make lock"
    assert all(requirement.specifier.contains(one, prereleases=True) for one in versions), "run: make lock"


def test_every_locked_package_has_hashes_and_somebody_who_needs_it() -> None:
    assert len(LOCKED) > 50
    assert [one.name for one in LOCKED if not one.hashes or not one.needed_by] == []
    named = {canonicalize_name(one.name) for one in wanted()}
    direct = {one.name for one in LOCKED if any(by.startswith("karat") for by in one.needed_by)}
    assert direct == named, "run: make lock"


def test_the_lock_names_no_server() -> None:
    text = locked.FILE.read_text()
    assert "://" not in text
    assert "index" not in text.replace("index-url", "")


def test_the_lowest_numpy_that_is_tested_is_the_one_that_is_promised() -> None:
    lowest = Requirement((ROOT / "requirements" / "lowest.txt").read_text().splitlines()[-1])
    promised = next(one for one in map(Requirement, PYPROJECT["project"]["dependencies"]) if one.name == "numpy")
    pairs = [{Version(one.version) for one in requirement.specifier} for requirement in (lowest, promised)]
    assert pairs[0] == pairs[1]


def run(script: str, *words: str, cwd: Path = ROOT, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, str(cwd / "tools" / script), *words], check=False, capture_output=True, text=True, cwd=cwd
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a release is built from, as it is here, in a repository of its own."""
    folder = tmp_path_factory.mktemp("release") / "karat"
    for name in ("src", "tools", "requirements"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, folder)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    subprocess.run(["git", *who, "commit", "-qm", "now", "--allow-empty"], cwd=folder, check=True)


@pytest.mark.slow
@pytest.mark.xdist_group("release")
def test_a_release_is_the_same_bytes_every_time_and_says_where_they_come_from(tree: Path, tmp_path: Path) -> None:
    private, public = key(tmp_path, "maintainer")
    run("release.py", "--sign", str(private), cwd=tree)
    out = tree / "build" / "release"
    first = {file.name: file.read_bytes() for file in out.iterdir()}
    assert sorted(Path(name).suffixes[-1] for name in first) == [".gz", ".json", ".json", ".sig", ".whl"]
    statement = json.loads(first["karat-0.1.0.provenance.json"])
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tree, check=True, capture_output=True, text=True)
    built = statement["predicate"]["buildDefinition"]
    assert built["externalParameters"]["commit"] == head.stdout.strip()
    for subject in statement["subject"]:
        assert hashlib.sha256(first[subject["name"]]).hexdigest() == subject["digest"]["sha256"]
    assert {one["name"] for one in statement["subject"]} == {n for n in first if "provenance" not in n}
    signed = signatures.verify(
        first["karat-0.1.0.provenance.json"],
        first["karat-0.1.0.provenance.json.sig"],
        f"me@example.org {public}\n".encode(),
        "karat-release",
    )
    assert signed == ("me@example.org",)
    with zipfile.ZipFile(out / "karat-0.1.0-py3-none-any.whl") as wheel:
        for line in wheel.read("karat-0.1.0.dist-info/RECORD").decode().splitlines():
            name, digest, _ = line.rsplit(",", 2)
            found = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest()).decode().rstrip("=")
            assert digest in {"", f"sha256={found}"}
    bom = json.loads(first["karat-0.1.0.cdx.json"])
    scopes = {one["name"]: one["scope"] for one in bom["components"]}
    assert scopes.keys() == {one.name for one in LOCKED}
    assert [scopes[name] for name in ("numpy", "httpcore", "obstore", "moto")] == [
        "required",
        "required",
        "optional",
        "excluded",
    ]
    refs = {one["bom-ref"] for one in bom["components"]} | {bom["metadata"]["component"]["bom-ref"]}
    assert {one["ref"] for one in bom["dependencies"]} == refs
    assert {to for one in bom["dependencies"] for to in one["dependsOn"]} <= refs
    run("release.py", cwd=tree)
    again = {file.name: file.read_bytes() for file in out.iterdir()}
    assert again == {name: data for name, data in first.items() if not name.endswith(".sig")}


@pytest.mark.slow
@pytest.mark.xdist_group("release")
def test_a_build_that_depends_on_where_it_runs_is_no_release(tree: Path) -> None:
    """A build hook that writes the folder's name is noticed."""
    hook = "import os\nfrom hatchling.builders.hooks.plugin.interface import BuildHookInterface\n\n\n"
    hook += "class Hook(BuildHookInterface):\n    def initialize(self, version, data):\n"
    hook += "        path = os.path.join(self.root, 'where.txt')\n        open(path, 'w').write(self.root)\n"
    hook += "        data['force_include'][path] = 'karat/where.txt'\n"
    before = (tree / "pyproject.toml").read_text()
    (tree / "hatch_build.py").write_text(hook)
    (tree / "pyproject.toml").write_text(before + "\n[tool.hatch.build.hooks.custom]\n")
    assert "expected all changes to be committed" in run("release.py", cwd=tree, code=2)
    commit(tree)
    try:
        assert "found others in karat-0.1.0" in run("release.py", "--out", "elsewhere", cwd=tree, code=1)
        assert not (tree / "elsewhere").exists()
    finally:
        subprocess.run(["git", "reset", "-q", "--hard", "HEAD~1"], cwd=tree, check=True)


def advisory(name: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"TEST-{name}",
        "modified": "2026-11-01T00:00:00Z",
        "affected": [{"package": {"ecosystem": "PyPI", "name": name}, **more}],
    }


def events(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"ranges": [{"type": "ECOSYSTEM", "events": [{kind: version} for kind, version in pairs]}]}


CLICK = next(one.version for one in LOCKED if one.name == "click")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "code"),
    [
        (advisory("click", versions=[CLICK]), 1),
        (advisory("Click", **events(("introduced", "0"))), 1),
        (advisory("click", **events(("introduced", "0"), ("last_affected", CLICK))), 1),
        (advisory("click", **events(("introduced", "0"), ("fixed", "1.0"), ("introduced", "2.0"))), 1),
        (advisory("click", **events(("introduced", "not a version"))), 1),
        (advisory("click", **events(("introduced", "0"), ("fixed", CLICK))), 0),
        (advisory("click", versions=["0.1"]), 0),
        (advisory("some-other-package", **events(("introduced", "0"))), 0),
        ({**advisory("click", versions=[CLICK]), "withdrawn": "2026-11-02T00:00:00Z"}, 3),
    ],
)
def test_the_audit(tmp_path: Path, one: dict[str, Any], code: int) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr(f"{one['id']}.json", json.dumps(one))
    told = run("audit.py", str(tmp_path / "all.zip"), code=code)
    assert {0: "0 concern them", 1: f"click {CLICK}: TEST-", 3: "NOT AUDITED"}[code] in told


@pytest.mark.slow
@pytest.mark.parametrize("content", [None, b"<html>", b"PK\x05\x06" + b"\0" * 18])
def test_an_audit_without_advisories_says_that_it_was_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "all.zip").write_bytes(content)
    assert "NOT AUDITED" in run("audit.py", str(tmp_path / "all.zip"), code=3)


@pytest.mark.slow
def test_an_audit_of_no_package_was_none(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "dev.txt").write_text("# nothing\n")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("x.json", json.dumps(advisory("click", versions=[CLICK])))
    assert "NOT AUDITED" in run("audit.py", str(tmp_path / "all.zip"), cwd=tmp_path, code=3)
