"""`karat refresh` on a terminal: it asks for the scope, and shows what it downloads."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from factories.commands import karat
from factories.forge import Forge
from factories.repositories import Repository, curves, golden_path, golden_text

OLD, NEW = golden_text(curves(1)), golden_text(curves(2))


@pytest.fixture
def tree(repository: Repository) -> Repository:
    repository.write(golden_path("a"), OLD)
    repository.write("karat.toml", 'preset = "megatron-lm"\n')
    repository.commit()
    return repository


def on_a_terminal(words: list[str], answer: bytes, cwd: Path, env: dict[str, str]) -> str:
    """What a person sees who types `answer`."""
    ours, theirs = pty.openpty()
    clean = {k: v for k, v in os.environ.items() if k not in {"CI", "NO_COLOR", "COLUMNS"}}
    process = subprocess.Popen(
        [sys.executable, "-m", "karat", *words],
        cwd=cwd,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**clean, "TERM": "xterm", "NO_COLOR": "1", **env},
        close_fds=True,
    )
    os.close(theirs)
    seen = bytearray()

    def read() -> None:
        try:
            while part := os.read(ours, 4096):
                seen.extend(part)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    os.write(ours, answer)
    assert process.wait(60) == 0, seen.decode()
    reader.join(60)
    os.close(ours)
    return seen.decode()


@pytest.mark.slow
def test_the_scope_is_asked_for_and_becomes_part_of_the_command(forge: Forge, tree: Repository, tmp_path: Path) -> None:
    run = forge.github.run("owner/name", conclusion="failure")
    run.job("gpt/a - dev", conclusion="failure", labels=["dgx-h100"])
    name = f"logs-a-{run.id}-0a"
    run.artifact(name, {"golden_values_dev_dgx_h100.json": NEW, "x.bin": os.urandom(100_000)})
    words = ["refresh", "--source", "github", "--repo", "owner/name", "--run-id", str(run.id)]
    env = {
        "GITHUB_API_URL": forge.github_url,
        "GITHUB_TOKEN": forge.github.token,
        "KARAT_CACHE_DIR": str(tmp_path / "cache"),
    }
    forge.latency = 0.2
    seen = on_a_terminal([*words, "--dry-run"], b"everything\nall\n", tree.root, env)
    assert "only-failing, all" in seen
    assert "'everything' is not one of" in seen
    assert f"{name} " in seen, "no bar of its own"
    assert f"--run-id {run.id} --scope all" in seen.split("next: ")[-1]
    on_a_terminal(words, b"all\n", tree.root, env)
    assert f"--run-id {run.id} --scope all`." in karat("summary", cwd=tree.root).out
