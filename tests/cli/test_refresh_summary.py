"""From `karat refresh` over `karat stage` to the PR text: what came from where, and what was overruled."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.commands import karat
from factories.forge import Forge
from factories.forge_github import GitHubRun
from factories.repositories import Repository, curves, golden_path, golden_text, moved

REPO = "owner/name"
OLD, NEW = golden_text(curves(1)), golden_text(curves(2))


class Desk:
    """A repository, a forge, and somebody who types."""

    def __init__(self, forge: Forge, tree: Repository, cache: Path) -> None:
        self.forge, self.tree = forge, tree
        self.env = {
            "GITHUB_API_URL": forge.github_url,
            "GITHUB_TOKEN": forge.github.token,
            "KARAT_CACHE_DIR": str(cache),
        }

    def ci_run(self, cases: str, text: str = NEW) -> GitHubRun:
        run = self.forge.github.run(REPO, conclusion="failure")
        for case in cases:
            run.job(f"gpt/{case} - dev", conclusion="failure", labels=["dgx-h100"])
            run.artifact(f"logs-{case}-{run.id}-0{case}", {"golden_values_dev_dgx_h100.json": text})
        return run

    def refresh(self, run: GitHubRun, *more: str) -> str:
        words = ("--source", "github", "--repo", REPO, "--run-id", str(run.id), "--scope", "all")
        done = karat("refresh", *words, *more, cwd=self.tree.root, **self.env)
        assert done.code == 0, done.err
        return done.out

    def summary(self, *words: str) -> str:
        return karat("summary", *words, cwd=self.tree.root).out


@pytest.fixture
def desk(forge: Forge, repository: Repository, tmp_path: Path) -> Desk:
    for case in "abc":
        repository.write(golden_path(case), OLD)
    repository.write("karat.toml", 'preset = "megatron-lm"\n')
    repository.commit()
    return Desk(forge, repository, tmp_path / "cache")


@pytest.mark.slow
def test_each_run_has_its_own_goldens(desk: Desk) -> None:
    """Two refreshes and an edit lie in the tree; the text must not give the last run all of it."""
    first, second = desk.ci_run("a"), desk.ci_run("b")
    desk.refresh(first)
    desk.refresh(second, "--metric", "lm loss")
    desk.tree.write(golden_path("c"), NEW)
    text = desk.summary()
    assert f"\nRefresh of golden values from GitHub workflow run `{second.id}`." in text
    assert "- Updated **3 golden-value files**" in text
    earlier = f"not by this command, but from GitHub workflow run `{first.id}`: `a/"
    assert f"- 1 of them {earlier}" in text
    assert "- 1 of them without provenance, or edited since: `c/" in text


@pytest.mark.slow
def test_what_was_recorded_beside_a_refresh_is_said_to_be(desk: Desk) -> None:
    desk.refresh(desk.ci_run("a"))
    result = desk.tree.write("out.json", NEW)
    done = karat("record", str(result), "-o", golden_path("b"), cwd=desk.tree.root)
    assert done.code == 0, done.out
    assert "- 1 of them not by this command, but from `karat record`: `b/" in desk.summary()


@pytest.mark.slow
def test_a_refresh_that_confirms_is_where_the_values_are_from(desk: Desk) -> None:
    run = desk.ci_run("ab")
    desk.refresh(run)
    desk.refresh(run)
    text = desk.summary()
    assert f"Full refresh of golden values from GitHub workflow run `{run.id}`." in text
    assert "of them" not in text


@pytest.mark.slow
def test_why_a_finding_was_overruled_stands_in_the_text(desk: Desk) -> None:
    desk.refresh(desk.ci_run("a", golden_text({k: moved(v, 2) for k, v in curves(1).items()})))
    forced = karat("stage", "--force", "--reason", "new cuDNN", cwd=desk.tree.root)
    assert forced.code == 0
    text = desk.summary()
    assert "- Accepted despite fail findings (1):" in text
    assert "golden_values_dev_dgx_h100.json`: new cuDNN" in text


@pytest.mark.slow
def test_a_committed_refresh_is_no_longer_what_the_text_is_about(desk: Desk) -> None:
    run = desk.ci_run("ab")
    desk.refresh(run)
    desk.tree.commit()
    desk.tree.write(golden_path("c"), NEW)
    text = desk.summary()
    assert "Comparison of golden values: `HEAD` → `working tree`." in text
    assert str(run.id) not in text
    assert f"run `{run.id}`" in desk.summary("HEAD~1")


@pytest.mark.slow
def test_a_refresh_that_confirms_ends_with_a_command_too(desk: Desk) -> None:
    run = desk.ci_run("a")
    first = desk.refresh(run).splitlines()
    assert first[-1] == "next: karat review"
    assert "did code or packages move them? karat hunt split --code OLD..NEW --packages OLD.txt..NEW.txt" in first[-2]
    assert desk.refresh(run).splitlines()[-1] == "next: karat review"
    desk.tree.commit()
    last = desk.refresh(desk.ci_run("b", OLD))
    assert last.splitlines()[-1] == "next: git diff"
    assert "hunt split" not in last


@pytest.mark.slow
def test_a_folder_laid_out_as_the_repository_needs_no_manifest(desk: Desk, tmp_path: Path) -> None:
    """No job tells the model there; the path does."""
    folder = tmp_path / "results"
    new = folder / golden_path("a")
    new.parent.mkdir(parents=True)
    new.write_text(NEW)
    done = karat("refresh", "--source", "folder", str(folder), "--scope", "all", cwd=desk.tree.root)
    assert done.code == 0, done.out
    assert (desk.tree.root / golden_path("a")).read_text() == NEW


@pytest.mark.parametrize("words", [("folder", "results"), ("file://{root}/results",)])
def test_results_inside_the_repository_are_no_goldens_of_it(repository: Repository, words: tuple[str, ...]) -> None:
    """As `gh run download` leaves them where one stands; the default patterns would take them for goldens."""
    repository.write("goldens/golden_values.json", OLD)
    repository.commit()
    repository.write("results/goldens/golden_values.json", NEW)
    source = [word.format(root=repository.root) for word in words]
    done = karat("refresh", "--source", *source, "--scope", "all", cwd=repository.root)
    assert done.code == 0, done.out + done.err
    assert (repository.root / "goldens/golden_values.json").read_text() == NEW


def test_a_source_that_git_tracks_may_hold_goldens(repository: Repository) -> None:
    repository.write("goldens/golden_values.json", OLD)
    repository.commit()
    words = ("--source", "folder", "goldens", "--scope", "all")
    done = karat("refresh", *words, "--dry-run", cwd=repository.root)
    assert done.code == 0, done.out + done.err
    assert "1 unchanged" in done.out


def test_a_reset_spares_the_results_that_are_about_to_be_read(repository: Repository) -> None:
    repository.write("goldens/golden_values.json", OLD)
    repository.commit()
    repository.write("goldens/golden_values.json", golden_text(curves(3)))
    results = repository.write("results/goldens/golden_values.json", NEW)
    words = ("--reset", "--source", "folder", "results", "--scope", "all")
    done = karat("refresh", *words, cwd=repository.root)
    assert done.code == 0, done.out + done.err
    assert results.read_text() == NEW
    assert (repository.root / "goldens/golden_values.json").read_text() == NEW


@pytest.mark.slow
def test_what_a_refresh_left_undone_is_said_again_when_the_rest_is_staged(desk: Desk) -> None:
    run = desk.ci_run("a")
    run.job("gpt/b - dev", conclusion="failure", labels=["dgx-h100"])
    died = golden_text(curves(2), stop=13)
    run.artifact(f"logs-b-{run.id}-0b", {"golden_values_dev_dgx_h100.json": died})
    words = ("--source", "github", "--repo", REPO, "--run-id", str(run.id), "--scope", "all")
    for _ in range(2):  # the second only confirms what the first wrote
        assert karat("refresh", *words, cwd=desk.tree.root, **desk.env).code == 1
    done = karat("stage", cwd=desk.tree.root)
    assert done.code == 0
    assert "warn not-refreshed" in done.out
    assert "asked for in the last refresh, and not done" in done.out
    assert "stops at step 13 of 50" in done.out
    desk.tree.commit()
    assert "not-refreshed" not in karat("stage", cwd=desk.tree.root).out
