"""A clone whose .git/config names programs: karat's own git calls run none of them."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from factories.repositories import Repository, curves, golden_text
from karat.captures.environment import environment
from karat.cli import run

GOLDEN = "tests/golden_values/a.json"


class Hostile(Repository):
    """Its every setting that names a program names one that leaves a file behind."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / "clone")
        self.marks = root / "ran"
        self.marks.mkdir()
        self.write("karat.toml", '[goldens]\npaths = ["tests/golden_values/*.json"]\n')
        self.write(GOLDEN, golden_text(curves(1)))
        self.other = Repository(self.root / "other")
        for repository in (self.other, self):
            golden = repository.write("tests/golden_values/b.json", golden_text(curves(4)))
            os.utime(golden, (2e9, 2e9))  # later than the index, so that git looks into it each time
            self.first = repository.commit()
        self.write(GOLDEN, golden_text(curves(2)))
        self.write(".gitattributes", "*.json diff=odd\n")
        self.commit()
        signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"
        signed = self.git("cat-file", "commit", "HEAD").replace("\n\n", f"\n{signature}\n\n", 1)
        (root / "signed").write_text(signed)
        self.git("reset", "--soft", self.git("hash-object", "-wtcommit", str(root / "signed")).strip())
        self.write(GOLDEN, golden_text(curves(3)))
        hooks = root / "hooks"
        hooks.mkdir()
        for hook in ("post-index-change", "reference-transaction", "pre-commit", "post-checkout", "pre-auto-gc"):
            self.program(hooks / hook, f"hook-{hook}")
        for setting, name in {
            "core.fsmonitor": "fsmonitor",
            "core.sshCommand": "ssh",
            "core.pager": "pager",
            "core.gitProxy": "proxy",
            "core.askPass": "askpass",
            "core.alternateRefsCommand": "alternates",
            "diff.external": "external-diff",
            "diff.odd.textconv": "textconv",
            "diff.odd.command": "diff-driver",
            "credential.helper": "credentials",
            "gpg.program": "gpg",
            "remote.evil.uploadpack": "uploadpack",
        }.items():
            self.git("config", setting, str(self.program(root / name, name)))
        self.git("config", "core.hooksPath", str(hooks))
        self.git("config", "log.showSignature", "true")
        self.git("config", "protocol.allow", "always")

    def program(self, path: Path, name: str) -> Path:
        path.write_text(f"#!/bin/sh\ntouch '{self.marks / name}'\nexit 1\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def promise(self, url: str) -> None:
        """A partial clone of `url` that lacks the golden's old version."""
        for setting, value in {
            "core.repositoryFormatVersion": "1",
            "extensions.partialClone": "evil",
            "remote.evil.url": url,
            "remote.evil.promisor": "true",
        }.items():
            self.git("config", setting, value)
        oid = self.git("rev-parse", f"{self.first}:{GOLDEN}").strip()
        (self.root / ".git/objects" / oid[:2] / oid[2:]).unlink()

    def filters(self) -> None:
        """Filters of its own, also in a submodule."""
        for repository, name in ((self, "o=d"), (self.other, "other")):
            (repository.root / ".git/info/attributes").write_text(f"*.json filter={name}\n")
            for kind in ("clean", "smudge", "process"):
                program = self.program(self.marks.with_name(kind), f"filter-{kind}")
                repository.git("config", f"filter.{name}.{kind}", str(program))

    def ran(self) -> list[str]:
        return sorted(mark.name for mark in self.marks.iterdir())


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hostile:
    made = Hostile(tmp_path)
    monkeypatch.chdir(made.root)
    monkeypatch.delenv("CI", raising=False)
    return made


@pytest.mark.parametrize(
    "words",
    [
        ["diff"],
        ["diff", "HEAD~1..HEAD"],
        ["check", GOLDEN, "--golden", f"HEAD:{GOLDEN}"],
        ["stage"],
        ["changes", "--golden", GOLDEN],
        ["summary"],
        ["refresh", "--reset"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_command_runs_no_program_that_the_clone_names(
    hostile: Hostile, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert run(words) in {0, 1} or "2 values" in capsys.readouterr().out
    assert hostile.ran() == []


@pytest.mark.parametrize(
    "words", [["diff"], ["diff", "HEAD~1"], ["summary"], ["check", GOLDEN, "--golden", f"HEAD:{GOLDEN}"]], ids=" ".join
)
def test_no_filter_of_the_clone_runs_to_see_what_has_changed(
    hostile: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    hostile.filters()
    (tmp_path / "users").write_text('[filter "o=d"]\nrequired = true\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "users"))
    assert run(words) in {0, 1}
    assert hostile.ran() == []
    subprocess.run(["git", "diff-index", "--raw", "HEAD"], capture_output=True, check=False)
    assert "filter-process" in hostile.ran(), "git alone runs it"


@pytest.mark.parametrize("words", [["diff"], ["stage"], ["refresh", "--reset"]], ids=" ".join)
def test_a_clone_that_calls_another_folder_its_work_tree(
    hostile: Hostile, capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    hostile.git("config", "core.worktree", str(tmp_path / "elsewhere"))
    assert run(words) == 3
    assert "core.worktree" in capsys.readouterr().err


def test_the_state_of_a_tree_is_asked_without_its_programs(hostile: Hostile) -> None:
    assert environment(hostile.root).dirty
    assert hostile.ran() == []


@pytest.mark.parametrize(
    "url", ["ssh://example.invalid/x", "ext::sh -c 'touch % ran/ext'", "/nowhere", "git://example.invalid/x"]
)
@pytest.mark.parametrize(
    "words", [["diff", "HEAD~1..HEAD"], ["check", GOLDEN, "--golden", f"HEAD~1:{GOLDEN}"]], ids=lambda words: words[0]
)
def test_an_object_that_is_missing_is_not_fetched(
    hostile: Hostile, capsys: pytest.CaptureFixture[str], url: str, words: list[str]
) -> None:
    hostile.promise(url)
    assert run(words) == 3
    assert hostile.ran() == []
    said = "".join(capsys.readouterr())
    assert "a partial clone" in said
