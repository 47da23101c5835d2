"""What is wrong in trees that are made for it."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from factories.refreshed import DAY, NOON, ONE, TWO, noisy
from factories.repositories import Repository, curves, golden_path, golden_text
from karat.api import diff_options
from karat.audits.audit import AuditReport, against_baseline, audit, name_of
from karat.config import load
from karat.findings import Severity
from karat.settings import AuditSettings
from karat.system.command import Command

TODAY = datetime.fromtimestamp(NOON + 20 * DAY, UTC).date()
CASES = "tests/functional_tests/test_cases"
THREE = golden_path("three")


def audited(root: Path, *, only: tuple[str, ...] = (), stale: int = 0, **settings: tuple[str, ...]) -> AuditReport:
    config = load(root, preset="megatron-lm")
    chosen = AuditSettings(stale_months=stale, **settings) if settings else AuditSettings(stale_months=stale)
    return audit(root, diff_options(config, only=only), chosen, today=TODAY)


def told(report: AuditReport) -> list[tuple[str, str, str]]:
    return [(f.severity.value, f.kind, f.path) for f in report.findings]


def test_a_tree_without_fault_has_no_findings(repository: Repository) -> None:
    repository.write(ONE, golden_text(noisy(1)))
    repository.write(TWO, golden_text(noisy(2)))
    report = audited(repository.root)
    assert (report.goldens, report.findings) == (2, ())
    assert report.notes == ("not looked at: which goldens have a test; karat.toml has no [audit] tests",)


@pytest.mark.parametrize(
    ("text", "severity", "kind", "words"),
    [
        ("", "fail", "empty", "0 bytes"),
        ("{}", "fail", "empty", "found only {}"),
        ('{"lm loss": ', "fail", "unreadable", ""),
        ("<<<<<<< ours\n{}\n=======\n", "fail", "conflict-markers", ""),
        (golden_text(curves(1), stop=13), "fail", "truncated", "stops at step 13"),
        (
            golden_text({**curves(1), "lm loss": curves(1)["lm loss"] * float("nan")}),
            "warn",
            "empty",
            "no finite values",
        ),
    ],
    ids=["0 bytes", "{}", "cut off", "conflict", "truncated", "all NaN"],
)
def test_what_is_wrong_with_one_golden(repository: Repository, text: str, severity: str, kind: str, words: str) -> None:
    repository.write(ONE, text)
    repository.write(TWO, golden_text(noisy(2)))
    found, *_ = audited(repository.root).findings
    assert {finding.path for finding in audited(repository.root).findings} == {ONE}
    assert (found.severity.value, found.kind, found.path) == (severity, kind, ONE)
    assert words in found.message
    assert found.next == ("git mergetool" if kind == "conflict-markers" else f"git log --oneline -- {ONE}")


def nan_at(*steps: int, name: str = "lm loss", value: float | str = "nan") -> str:
    blocks = json.loads(golden_text(curves(1)))
    for step in steps:
        blocks[name]["values"][str(step)] = value
    return json.dumps(blocks)


def test_a_loss_that_turned_nan_fails(repository: Repository) -> None:
    repository.write(ONE, nan_at(*range(31, 51)))
    (found,) = audited(repository.root).findings
    assert (found.severity, found.kind, found.metric) == (Severity.FAIL, "not-finite", "lm loss")
    assert found.message == "lm loss: NaN after step 30, though other metrics go on to step 50"


def test_a_hole_amid_values_warns(repository: Repository) -> None:
    repository.write(ONE, nan_at(20, 21))
    (found,) = audited(repository.root).findings
    assert (found.severity, found.kind) == (Severity.WARN, "not-finite")
    assert found.message == "lm loss: NaN at 2 steps after step 19, amid values"


def test_an_infinity_fails(repository: Repository) -> None:
    repository.write(ONE, nan_at(20, value="inf"))
    kinds = {(f.severity.value, f.kind) for f in audited(repository.root).findings}
    assert ("fail", "not-finite") in kinds


@pytest.mark.parametrize(
    "text",
    [
        nan_at(*range(1, 26)),
        nan_at(*(step for step in range(1, 51) if step % 5), name="num-zeros"),
        nan_at(1, 50, name="iteration-time"),
    ],
    ids=["resumed half way", "sampled now and then", "no first and last timing"],
)
def test_what_runs_leave_out_on_purpose_is_no_finding(repository: Repository, text: str) -> None:
    repository.write(ONE, text)
    assert audited(repository.root).findings == ()


def test_copies_are_one_finding(repository: Repository) -> None:
    for path in (ONE, TWO, THREE):
        repository.write(path, golden_text(noisy(1)))
    (found,) = audited(repository.root).findings
    assert (found.severity, found.kind, found.path) == (Severity.WARN, "copied-golden", ONE)
    assert found.message == f"the same bytes as {THREE}, {TWO}: copied, or written for the wrong case"


def test_two_empty_goldens_are_not_called_copies(repository: Repository) -> None:
    repository.write(ONE, "{}")
    repository.write(TWO, "{}")
    assert {kind for _, kind, _ in told(audited(repository.root))} == {"empty"}


TESTS = (f"{CASES}/{{model}}/{{case}}/model_config.yaml",)


def test_goldens_without_a_test_and_tests_without_a_golden(repository: Repository) -> None:
    repository.write(ONE, golden_text(noisy(1)))
    repository.write(golden_path("one", "dgx_gb200"), golden_text(noisy(3)))
    repository.write(TWO, golden_text(noisy(2)))
    repository.write(f"{CASES}/gpt/one/model_config.yaml", "")
    repository.write(f"{CASES}/gpt/four/model_config.yaml", "")
    report = audited(repository.root, tests=TESTS)
    assert (report.tests, report.notes) == (2, ())
    assert told(report) == [
        ("warn", "test-without-golden", f"{CASES}/gpt/four/model_config.yaml"),
        ("warn", "untested-golden", TWO),
    ]
    narrowed = audited(repository.root, tests=TESTS, only=("*one*",))
    assert told(narrowed) == []


def test_the_presets_know_their_layouts() -> None:
    assert load(Path("/"), preset="megatron-lm").audit.tests == TESTS
    assert load(Path("/"), preset="pytorch-dynamo").audit.named_in == (".github/workflows/*.yml",)


def test_a_layout_that_is_not_there_is_said_and_not_judged(repository: Repository) -> None:
    repository.write(ONE, golden_text(noisy(1)))
    report = audited(repository.root, tests=TESTS)
    assert report.findings == ()
    assert report.notes == (f"not looked at: which goldens have a test; no file matches {TESTS[0]}",)


def test_tables_of_suites_that_no_workflow_runs(repository: Repository) -> None:
    folder = "benchmarks/dynamo/ci_expected_accuracy"
    repository.write(f"{folder}/inductor_timm_training.csv", "name,accuracy\na,pass\n")
    repository.write(f"{folder}/rocm/inductor_timm_inference.csv", "name,accuracy\nb,pass\n")
    repository.write(f"{folder}/inductor_huggingface_training.csv", "name,accuracy\nc,pass\n")
    repository.write(".github/workflows/inductor.yml", '{ config: "inductor_timm", shard: 1 }\n')
    config = load(repository.root, preset="pytorch-dynamo")
    found = audit(repository.root, diff_options(config), config.audit, today=TODAY)
    assert told(found) == [("warn", "untested-golden", f"{folder}/inductor_huggingface_training.csv")]
    assert "expected its name inductor_huggingface in .github/workflows/*.yml" in found.findings[0].message
    (repository.root / ".github/workflows/inductor.yml").unlink()
    nothing = audit(repository.root, diff_options(config), config.audit, today=TODAY)
    assert nothing.findings == ()
    assert nothing.notes[0] == "not looked at: which goldens are named; no file matches .github/workflows/*.yml"


def dated(repository: Repository, days: int) -> None:
    """Commit as of so many days after noon."""
    when = f"{NOON + days * DAY} +0000"
    repository.git("add", "--all")
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "commit", "--quiet", "--message=m"],
        cwd=repository.root,
        env={**os.environ, "GIT_COMMITTER_DATE": when, "GIT_AUTHOR_DATE": when},
        check=True,
    )


def test_a_golden_that_was_left_behind_warns(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "p")
    for seed, path in enumerate((ONE, TWO, THREE)):
        repository.write(path, golden_text(noisy(seed)))
    dated(repository, -120)
    for seed, path in ((11, TWO), (12, THREE)):
        repository.write(path, golden_text(noisy(seed)))
    dated(repository, 0)
    (found,) = audited(repository.root, stale=3).findings
    assert (found.severity, found.kind, found.path) == (Severity.WARN, "stale-golden", ONE)
    assert found.message.endswith(", 4 months ago; 2 of 3 goldens on dgx_h100 were refreshed since")
    assert audited(repository.root, stale=6).findings == ()
    assert audited(repository.root, stale=0).findings == ()
    assert not (repository.root / ".git/karat").exists(), "an audit does not turn the history of a diff on"


def test_a_whole_suite_that_rests_is_only_info(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "p")
    for seed, path in enumerate((ONE, TWO, THREE)):
        repository.write(path, golden_text(noisy(seed)))
    dated(repository, -120)
    assert {severity for severity, _, _ in told(audited(repository.root, stale=3))} == {"info"}


def test_ages_need_a_history(tmp_path: Path) -> None:
    path = tmp_path / ONE
    path.parent.mkdir(parents=True)
    path.write_text(golden_text(noisy(1)))
    report = audited(tmp_path, stale=3)
    assert report.goldens == 1
    assert "not looked at: how old goldens are; there is no git history" in report.notes


def test_deleted_and_ignored_files_are_not_there(repository: Repository) -> None:
    repository.write(ONE, golden_text(noisy(1)))
    repository.write(TWO, "")
    repository.commit()
    (repository.root / TWO).unlink()
    repository.write(".gitignore", "three/\n")
    repository.write(THREE, "")
    assert (audited(repository.root).goldens, audited(repository.root).findings) == (1, ())


def test_captured_cases_are_left_to_verify(repository: Repository) -> None:
    repository.write(ONE, golden_text(noisy(1)))
    folder = f"{CASES}/golden/suite/flow/leaf"
    repository.write(f"{folder}/manifest.json", '{"schema": "karat.bundle/1"}')
    repository.write(f"{folder}/golden_values_x.json", "")
    assert (audited(repository.root).goldens, audited(repository.root).findings) == (1, ())


def test_a_link_is_said_not_followed(repository: Repository) -> None:
    repository.write(ONE, golden_text(noisy(1)))
    (repository.root / TWO).parent.mkdir(parents=True)
    (repository.root / TWO).symlink_to("/etc/passwd")
    (found,) = audited(repository.root).findings
    assert (found.kind, found.path) == ("cannot-read", TWO)


def test_nothing_to_audit_is_no_clean_bill(repository: Repository) -> None:
    repository.write("readme.md", "")
    (found,) = audited(repository.root).findings
    assert found.kind == "nothing-compared"


def test_a_baseline_forgives_what_it_lists_and_nothing_else(repository: Repository) -> None:
    repository.write(ONE, "{}")
    repository.write(TWO, "")
    repository.write(THREE, nan_at(20))
    report = audited(repository.root)
    names = [name_of(finding) for finding in report.findings]
    assert names == [f"empty {ONE}", f"empty {TWO}", f"not-finite {THREE} lm loss"]
    held = against_baseline(report, [names[0], names[2]], "audit.json", Command("karat", "audit"))
    assert told(held) == [("fail", "empty", TWO), ("info", "empty", ONE), ("info", "not-finite", THREE)]
    assert held.known == 2
    assert held.findings[1].message.endswith("(known: audit.json)")


def test_a_listed_fault_that_was_repaired_must_leave_the_list(repository: Repository) -> None:
    repository.write(ONE, golden_text(noisy(1)))
    held = against_baseline(audited(repository.root), [f"empty {ONE}"], "audit.json", Command("karat", "audit"))
    (found,) = held.findings
    assert (found.severity, found.kind) == (Severity.FAIL, "baseline-stale")
    assert found.next == "karat audit --update-baseline"
