"""A token goes to the one host it is for, and nowhere else: not a log, a file, an error, a command line."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from factories.forge import Forge
from factories.repositories import Repository, curves, golden_path, golden_text

TOKEN = "ghp_Planted+Secret/7f3a9c"  # noqa: S105 - planted, to be looked for
FORMS = (TOKEN, quote(TOKEN, safe=""), base64.b64encode(TOKEN.encode()).decode())
LOUD = "import logging, sys; logging.basicConfig(level=1); from karat.cli import run; sys.exit(run(sys.argv[1:]))"


@pytest.fixture
def forge() -> Iterator[Forge]:
    with Forge() as made:
        made.github.tokens = {TOKEN}
        made.gitlab.tokens = {TOKEN}
        yield made


@pytest.fixture
def tree(repository: Repository) -> Repository:
    repository.write(golden_path("a"), golden_text(curves(1)))
    repository.write("karat.toml", 'preset = "megatron-lm"\n')
    repository.commit()
    return repository


def _bad_token(forge: Forge) -> None:
    forge.github.tokens = {"another"}
    forge.gitlab.tokens = {"another"}


def _nothing_there(forge: Forge) -> None:
    forge.github.repositories.clear()
    forge.gitlab.projects.clear()


TROUBLE: dict[str, Callable[[Forge], None]] = {
    "none": lambda _: None,
    "wrong token": _bad_token,
    "no such run": _nothing_there,
    "forbidden": lambda forge: forge.faults.forbidden(r"/zip|/artifacts$", times=None),
    "html": lambda forge: forge.faults.html(r"/jobs|/bridges", times=None),
    "not a zip": lambda forge: forge.faults.html(r"logs-a|gitlab-artifacts", times=None),
    "cut": lambda forge: forge.faults.cut(r"logs-a|gitlab-artifacts", after=50, times=1),
    "stale signature": lambda forge: forge.faults.stale_signature(r"logs-a|gitlab-artifacts", times=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("trouble", TROUBLE)
@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_a_planted_token_is_found_nowhere(
    forge: Forge, tree: Repository, tmp_path: Path, trouble: str, kind: str
) -> None:
    words = _github(forge) if kind == "github" else _gitlab(forge)
    TROUBLE[trouble](forge)
    env = {
        **{k: v for k, v in os.environ.items() if k != "CI"},
        "GITHUB_API_URL": forge.github_url,
        "CI_API_V4_URL": forge.gitlab_url,
        "GITHUB_TOKEN": TOKEN,
        "GITLAB_TOKEN": TOKEN,
        "KARAT_CACHE_DIR": str(tmp_path / "cache"),
        "HTTPX_LOG_LEVEL": "trace",
    }
    log = (tmp_path / "log").open("w+")  # a pipe would fill, and nobody reads it meanwhile
    process = subprocess.Popen(
        [sys.executable, "-c", LOUD, "refresh", *words, "--scope", "all", "--json", str(tmp_path / "report.json")],
        cwd=tree.root,
        env=env,
        stdout=log,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = _command_lines(process)
    log.seek(0)
    output = log.read()
    log.close()
    assert process.returncode in {0, 1, 3}, output
    assert lines
    for form in FORMS:
        assert form not in output
        assert not any(form in line for line in lines)
        assert _files_with(form, tmp_path) == []
    api = [r for r in forge.requests if r.host == "api"]
    assert any(TOKEN in str(r.headers) for r in api), "the API never saw the token: nothing was tested"
    elsewhere = [r for r in forge.requests if r.host != "api"]
    assert not any(form in f"{r.target}{r.headers}" for r in elsewhere for form in FORMS)
    assert not any(form in r.target for r in api for form in FORMS)


def _github(forge: Forge) -> list[str]:
    run = forge.github.run("owner/name", conclusion="failure")
    run.job("gpt/a - dev", conclusion="failure", labels=["dgx-h100"])
    run.artifact(f"logs-a-{run.id}-0a", {"golden_values_dev_dgx_h100.json": golden_text(curves(2))})
    return ["--source", "github", "--repo", "owner/name", "--run-id", str(run.id)]


def _gitlab(forge: Forge) -> list[str]:
    parent = forge.gitlab.pipeline("group/name")
    child = forge.gitlab.pipeline("group/name", source="parent_pipeline")
    parent.bridge("functional:run_dev_dgx_h100", child)
    job = child.job("a", stage="gpt", status="failed")
    job.artifact({"golden_values_dev_dgx_h100.json": golden_text(curves(2))})
    return ["--source", "gitlab", "--project", "group/name", "--pipeline-id", str(parent.id)]


def _command_lines(process: subprocess.Popen[str]) -> set[str]:
    """What `ps` would show of the process and its children while it runs."""
    seen: set[str] = set()
    while process.poll() is None:
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if entry.name == str(process.pid) or f"\nPPid:\t{process.pid}\n" in (entry / "status").read_text():
                    seen.add((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    return seen


def _files_with(text: str, folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and not p.is_symlink() and text.encode() in p.read_bytes()]
