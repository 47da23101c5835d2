from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from factories.commands import karat_here
from factories.forge import Forge
from factories.repositories import Repository
from karat.schemas import schema

REPO = "owner/name"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No token and no address but what a test sets; git and nothing else on the PATH."""
    for name in [*os.environ]:
        if name.endswith("_TOKEN") or name.startswith(("GITHUB_", "GH_", "CI", "GITLAB_", "RAY_")):
            monkeypatch.delenv(name)
    (tmp_path / "bin").mkdir()
    found = shutil.which("git")
    assert found is not None
    (tmp_path / "bin" / "git").symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def checks(cwd: Path, *words: str, code: int = 0, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    done = karat_here("doctor", *words, "--json", "-", cwd=cwd, **(env or {}))
    assert done.code == code, done.out + done.err
    document = json.loads(done.out)
    jsonschema.validate(document, schema("karat.doctor/1"))
    return {check["name"]: check for check in document["checks"]}


@pytest.mark.usefixtures("bare")
def test_a_sound_repository(repository: Repository) -> None:
    repository.write("karat.toml", 'preset = "megatron-lm"\n')
    repository.commit()
    found = checks(repository.root)
    sound = ("git", "repository", "configuration", "extra capture")
    assert {found[name]["state"] for name in sound} == {"ok"}
    absent = ("GitHub token", "GitLab token", "containers", "ray", "slurm")
    assert {found[name]["state"] for name in absent} == {"missing"}
    assert all(check["fix"] for check in found.values() if check["state"] != "ok")


@pytest.mark.usefixtures("bare")
def test_a_shallow_clone_is_named_with_its_fix(repository: Repository, tmp_path: Path) -> None:
    for number in range(2):
        repository.write("a.txt", str(number))
        repository.commit()
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{repository.root}", str(tmp_path / "cut")], check=True)
    one = checks(tmp_path / "cut")["repository"]
    assert (one["state"], one["fix"]) == ("warn", "git fetch --unshallow")
    subprocess.run(["git", "-C", str(tmp_path / "cut"), "fetch", "-q", "--unshallow"], check=True)
    assert checks(tmp_path / "cut")["repository"]["state"] == "ok"


@pytest.mark.usefixtures("bare")
def test_a_broken_configuration_and_a_folder_without_repository(tmp_path: Path, repository: Repository) -> None:
    (tmp_path / "plain").mkdir()
    assert checks(tmp_path / "plain")["repository"]["fix"] == "git init"
    repository.write("karat.toml", "presets = 1\n")
    wrong = checks(repository.root, code=1)["configuration"]
    assert (wrong["state"], "did you mean 'preset'" in wrong["says"]) == ("fail", True)


@pytest.mark.usefixtures("bare")
def test_tokens_are_tried_where_the_server_is_named_and_never_shown(repository: Repository, forge: Forge) -> None:
    forge.github.run(REPO, run_id=1)
    forge.gitlab.project("group/name")
    env = {"GITHUB_API_URL": forge.github_url, "CI_API_V4_URL": forge.gitlab_url}
    repository.write("karat.toml", f'[refresh]\nrepo = "{REPO}"\nproject = "group/name"\n')
    assert checks(repository.root, env=env)["GitHub token"]["state"] == "warn"
    assert forge.seen() == []
    env |= {"GITHUB_TOKEN": forge.github.token, "GITLAB_TOKEN": forge.gitlab.token}
    good = checks(repository.root, env=env)
    assert [good[name]["state"] for name in ("GitHub token", "GitLab token")] == ["ok", "ok"]
    assert good["GitHub token"]["says"] == f"found in GITHUB_TOKEN, accepted for {REPO}"
    bad = karat_here("doctor", cwd=repository.root, **env | {"GITHUB_TOKEN": "ghp_Planted0", "GITLAB_TOKEN": "no"})
    assert (bad.code, bad.out.count("HTTP 401"), "ghp_Planted0" in bad.out + bad.err) == (1, 2, False)
    assert bad.err.splitlines()[-1] == "next: gh auth login"


@pytest.mark.usefixtures("bare")
def test_a_server_that_does_not_answer_is_not_a_verdict(repository: Repository) -> None:
    repository.git("remote", "add", "origin", f"http://127.0.0.1:9/{REPO}.git")
    env = {"GITHUB_API_URL": "http://127.0.0.1:9", "GITHUB_TOKEN": "ghp_Planted0"}
    assert checks(repository.root, code=3, env=env)["GitHub token"]["state"] == "unverified"
    assert checks(repository.root, "--offline", env=env)["GitHub token"]["says"] == "found in GITHUB_TOKEN; not tried"
    assert checks(repository.root, code=3, env={"RAY_ADDRESS": "127.0.0.1:9"})["ray"]["state"] == "unverified"
    assert checks(repository.root, code=1, env={"RAY_ADDRESS": "nonsense"})["ray"]["state"] == "fail"
