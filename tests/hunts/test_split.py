"""Code or environment, as a user asks: a real repository, an index on loopback, real uv, the command line."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from conftest import missing
from factories.commands import karat_here
from factories.ends import ends
from factories.package_indexes import PackageIndex

if importlib.util.find_spec("uv") is None:
    missing("uv (pip install 'karat[hunt]')")
pytestmark = pytest.mark.slow

OTHERS = ("six", "idna", "toml", "attrs")
CHECK = "import sys, json, model\nimport core\nassert model.f(core.answer) == 42, 'wrong'\n"


class Shop:
    """A repository with two tags, and two lock files."""

    def __init__(self, folder: Path, index: PackageIndex) -> None:
        self.folder, self.index = folder, index
        self.git("init", "--quiet", "--initial-branch=main")
        for name in OTHERS:
            index.add(name, "1.0", "")
            index.add(name, "2.0", "")

    def git(self, *words: str) -> None:
        alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        who = {f"GIT_{who}_{what}": "ada@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        subprocess.run(
            ("git", *words), cwd=self.folder, check=True, capture_output=True, env={**os.environ, **alone, **who}
        )

    def commit(self, title: str, tag: str = "", **files: str) -> None:
        for name, text in files.items():
            (self.folder / f"{name}.py").write_text(text, encoding="utf-8")
        self.git("add", "--", *(f"{name}.py" for name in files))
        self.git("commit", "--quiet", "-m", title)
        if tag:
            self.git("tag", tag)

    def locks(self, old: str, new: str, **more: tuple[str, str]) -> None:
        pins = {**dict.fromkeys(OTHERS, ("1.0", "2.0")), "core": (old, new), **more}
        for side, name in enumerate(("old.txt", "new.txt")):
            text = "".join(f"{package}=={versions[side]}\n" for package, versions in pins.items())
            (self.folder / name).write_text(text, encoding="utf-8")

    def words(self, *options: str) -> tuple[str, ...]:
        index = ("--index", self.index.url, "--code", "v1..v2", "--packages", "old.txt..new.txt")
        return (sys.executable, "-m", "karat", "hunt", "split", *index, "--json", "found.json", *options)

    def split(self, *options: str, code: int = 1) -> dict[str, Any]:
        done = subprocess.run(self.words(*options), check=False, capture_output=True, text=True, cwd=self.folder)
        assert done.returncode == code, (done.stdout, done.stderr)
        found: dict[str, Any] = json.loads((self.folder / "found.json").read_bytes())
        return found


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    folder = tmp_path / "shop"
    folder.mkdir()
    with PackageIndex() as index:
        yield Shop(folder, index)


def suspects(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["part"], one["id"]) for culprit in report["culprits"] for one in culprit["suspects"]]


def test_the_release_of_the_package_that_is_to_blame(shop: Shop) -> None:
    for version, answer in (("1.0", 42), ("1.1", 42), ("1.2", 43), ("2.0", 43)):
        shop.index.add("core", version, f"answer = {answer}")
    shop.commit("First", "v1", model="f = int\n", check=CHECK)
    shop.commit("Second", "v2", model="f = abs\n")
    shop.locks("1.0", "2.0")
    found = shop.split("--", "python", "check.py")
    jsonschema.validate(found, json.loads(karat_here("schema", "karat.hunt/1", cwd=shop.folder).out))
    assert found["split"]["verdicts"] == {"crash": "environment"}
    cells = {(one["code"], one["environment"]): one["failed"] > 0 for one in found["split"]["cells"]}
    assert cells == {("old", "old"): False, ("old", "new"): True, ("new", "old"): False, ("new", "new"): True}
    assert [stage["title"] for stage in found["stages"]] == ["code and environment", "packages", "releases of core"]
    assert suspects(found) == [("core", "1.2")]


def test_the_commit_that_is_to_blame(shop: Shop) -> None:
    shop.index.add("core", "1.0", "answer = 42")
    shop.index.add("core", "2.0", "answer = 42")
    shop.commit("First", "v1", model="f = int\n", check=CHECK)
    shop.commit("Harmless", model="f = abs\n")
    shop.commit("Guilty", model="f = lambda x: x + 1\n")
    shop.commit("Later", "v2", other="")
    shop.locks("1.0", "2.0")
    found = shop.split("--", "python", "check.py")
    assert found["split"]["verdicts"] == {"crash": "code"}
    assert [one["title"] for culprit in found["culprits"] for one in culprit["suspects"]] == ["Guilty"]


def test_new_code_that_does_not_go_with_a_new_package(shop: Shop) -> None:
    shop.index.add("core", "1.0", "answer = 42")
    shop.index.add("core", "2.0", "answer = 42.5")
    shop.commit("First", "v1", model="f = int\n", check=CHECK)
    shop.commit("Second", "v2", model="f = abs\n")
    shop.locks("1.0", "2.0")
    found = shop.split("--", "python", "check.py")
    assert found["split"]["verdicts"] == {"crash": "interaction"}
    last = found["stages"][-1]
    assert (last["title"], sorted(last["changes"][0]["verdict"]["parts"])) == ("packages", ["code", "core"])


def test_a_package_that_can_be_installed_with_another_only(shop: Shop) -> None:
    """New core needs new partner, and old partner needs old core."""
    shop.index.add("core", "1.0", "answer = 42")
    shop.index.add("core", "2.0", "answer = 43", requires=["partner>=2"])
    shop.index.add("partner", "1.0", "", requires=["core<2"])
    shop.index.add("partner", "2.0", "")
    shop.commit("First", "v1", model="f = int\n", check=CHECK)
    shop.commit("Second", "v2", model="f = abs\n")
    shop.locks("1.0", "2.0", partner=("1.0", "2.0"))
    found = shop.split("--", "python", "check.py")
    assert suspects(found) == [("core", "2.0")]


def test_nothing_differs(shop: Shop) -> None:
    shop.index.add("core", "1.0", "answer = 42")
    shop.index.add("core", "2.0", "answer = 42")
    shop.commit("First", "v1", model="f = int\n", check=CHECK)
    shop.commit("Second", "v2", model="f = abs\n")
    shop.locks("1.0", "2.0")
    found = shop.split("--", "python", "check.py", code=0)
    assert found["split"]["verdicts"] == {"crash": "neither"}


def test_a_value_and_a_probe_that_is_not_in_the_repository(shop: Shop) -> None:
    shop.index.add("core", "1.0", "answer = 100")
    shop.index.add("core", "2.0", "answer = 90")
    shop.commit("First", "v1", model="f = int\n")
    shop.commit("Second", "v2", model="f = abs\n")
    shop.locks("1.0", "2.0")
    (shop.folder / "probe.py").write_text("import core\nprint('speed:', core.answer)\n", encoding="utf-8")
    found = shop.split("--value", "speed", "--better", "higher", "--", "python", "probe.py")
    assert found["split"]["verdicts"] == {"speed": "environment"}
    assert suspects(found) == [("core", "2.0")]


def test_a_split_that_was_killed_goes_on(shop: Shop) -> None:
    shop.index.add("core", "1.0", "answer = 42")
    shop.index.add("core", "2.0", "answer = 43")
    shop.commit("First", "v1", model="f = int\n", check=CHECK)
    shop.commit("Second", "v2", model="f = abs\n")
    shop.locks("1.0", "2.0")
    words = shop.words("--", "python", "check.py")
    with ends(), subprocess.Popen(words, cwd=shop.folder, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert next(line for line in running.stderr if line.startswith("[3/"))
        running.kill()
    journal = ".karat/hunt/split.hunt"
    resumed = (sys.executable, "-m", "karat", "hunt", "resume", journal, "--json", "found.json", "-q")
    done = subprocess.run(resumed, check=False, capture_output=True, text=True, cwd=shop.folder)
    assert done.returncode == 1, done.stderr
    assert suspects(json.loads((shop.folder / "found.json").read_bytes())) == [("core", "2.0")]
