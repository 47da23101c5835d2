"""Cases whose names mean harm, sealed as if they were sound: none is run, and no name of theirs becomes a path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from factories.archives import zipped
from factories.captured import capture, identity
from factories.runners import write_module
from karat.bundles.manifest import FileRecord, Manifest, encode, read, seal
from karat.bundles.places import BadPlace, open_place
from karat.replays.judge import ReplayOutcome
from karat.replays.options import CommandSpec, FunctionSpec, ReplayOptions
from karat.replays.replay import replay


def resealed(case: Path, **changes: Any) -> None:
    file = case / "manifest.json"
    file.write_bytes(encode(seal(msgspec.structs.replace(read(file.read_bytes()), **changes))))


def program(case: Path, name: str) -> FileRecord:
    """The case's program under another name, in the manifest and on disk."""
    manifest: Manifest = read((case / "manifest.json").read_bytes())
    assert manifest.program is not None
    (case / manifest.program.file).rename(case / "program" / name)
    return msgspec.structs.replace(manifest.program, file=f"program/{name}", name=name)


@pytest.mark.slow
@pytest.mark.parametrize("runner", [FunctionSpec(module="runner", name="run"), CommandSpec(words=("touch", "ran"))])
@pytest.mark.parametrize("name", ["git~1", "GIT~1", "git~1.", "path", "climbing"])
def test_a_case_with_a_hostile_name_is_damaged_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, runner: FunctionSpec | CommandSpec
) -> None:
    monkeypatch.chdir(write_module(tmp_path))
    case = capture(tmp_path / "bundle", identity())
    if name == "path":
        resealed(case, path=".git/hooks/post-checkout")
    elif name == "climbing":
        resealed(case, path="../../ran")
    else:
        resealed(case, program=program(case, name))
    report = replay("bundle", ReplayOptions(runner=runner, keep=tmp_path / "kept"))
    assert [one.outcome for one in report.cases] == [ReplayOutcome.DAMAGED]
    assert [*(tmp_path / "kept").rglob("*")] == []
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", [".git/config", "models/.GIT/config", "git~1/config", ".g\u200cit/config"])
def test_a_zip_with_git_s_own_files_is_refused_whole(tmp_path: Path, name: str) -> None:
    (tmp_path / "bundle.zip").write_bytes(zipped({"models/xnnpack/case/manifest.json": b"{}", name: b"[core]"}))
    with pytest.raises(BadPlace, match="git's own") as caught:
        open_place(tmp_path / "bundle.zip")
    assert caught.value.finding.kind == "bundle-damaged"
