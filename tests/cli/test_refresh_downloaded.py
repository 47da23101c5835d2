"""What `gh run download` leaves, refreshed from that folder: no job is known, so the tree must tell the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.archives import zipped
from factories.commands import Outcome, karat_here
from factories.pytorch_ci import FOLDER, HEADER, ROCM, golden
from factories.repositories import Repository, curves, golden_path, golden_text

OLD, NEW = golden_text(curves(1)), golden_text(curves(2))
H100 = "golden_values_dev_dgx_h100.json"


@pytest.fixture
def tree(repository: Repository) -> Repository:
    repository.write("karat.toml", 'preset = "megatron-lm"\n')
    repository.write(golden_path("a"), OLD)
    repository.write(golden_path("a", "dgx_h100_2nd"), OLD)
    for model in ("gpt", "bert"):
        repository.write(f"tests/functional_tests/test_cases/{model}/b/{H100}", OLD)
    repository.commit()
    return repository


def downloaded(folder: Path, artifacts: dict[str, dict[str, str]]) -> Path:
    """As `gh run download RUN --dir FOLDER` lays artifacts out."""
    for name, members in artifacts.items():
        for member, text in members.items():
            path = folder / name / member
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return folder


def refresh(tree: Repository, folder: Path, *words: str, scope: str = "all") -> Outcome:
    return karat_here("refresh", "--source", "folder", str(folder), "--scope", scope, *words, cwd=tree.root)


def test_a_case_that_is_unique_in_the_tree_is_found(tree: Repository, tmp_path: Path) -> None:
    logs = "logs-a-25341543542-0a1b2c3d-0000-4000-8000-0123456789ab"
    members = {H100: NEW, "golden_values_dev_dgx_h100_2nd.json": NEW, "golden_values_dev_dgx_gb200.json": NEW}
    done = refresh(tree, downloaded(tmp_path / "run", {logs: members}))
    assert done.code == 0, done.out
    for platform in ("dgx_h100", "dgx_h100_2nd", "dgx_gb200"):
        assert (tree.root / golden_path("a", platform)).read_text() == NEW


def test_a_case_of_two_models_is_not_guessed(tree: Repository, tmp_path: Path) -> None:
    done = refresh(tree, downloaded(tmp_path / "run", {"logs-b-7-0a": {H100: NEW}, "logs-c-7-0a": {H100: NEW}}))
    assert done.code == 1
    assert "nothing tells its model, and the tree has b under bert and gpt" in done.out
    assert "nothing tells its model, and no golden in the tree is of c" in done.out
    assert tree.git("status", "--porcelain") == ""


def test_nothing_tells_whether_jobs_failed_is_said_once(tree: Repository, tmp_path: Path) -> None:
    folder = downloaded(tmp_path / "run", {f"logs-a-7-0{n}": {H100: NEW} for n in range(9)})
    done = refresh(tree, folder, scope="only-failing")
    assert done.code == 1
    assert done.out.count("ambiguous-job") == 1, done.out
    assert "9 artifacts" in done.out


def test_reports_of_a_leak_check_cannot_be_told_from_the_plain_ones(repository: Repository, tmp_path: Path) -> None:
    repository.write("karat.toml", 'preset = "pytorch-dynamo"\n')
    repository.write(f"{FOLDER}/rocm/inductor_timm_training.csv", golden("a,pass,0"))
    repository.commit()
    (tmp_path / "reports").mkdir()
    for job in (11, 12):
        name = f"test-reports-test-inductor_timm-1-1-{ROCM}_{job}.zip"
        text = f"{HEADER}cuda,a,4,pass,1,{job}\n"
        (tmp_path / "reports" / name).write_bytes(zipped({"test/test-reports/training_timm_models.csv": text}))
    done = refresh(repository, tmp_path / "reports")
    assert done.code == 1
    assert "claimed-twice" in done.out
    assert repository.git("status", "--porcelain") == ""
