"""What lint says of files that are made for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from factories.refreshed import ONE, TWO, noisy
from factories.repositories import Repository, golden_text
from karat.api import diff_options
from karat.audits.lint import LintReport, lint
from karat.config import load
from karat.goldens.provenance import NAME, LockEntry, encode_lock

GOLDEN = golden_text(noisy(1))
LOCK = encode_lock({name: LockEntry(source="github", sha256="0" * 64) for name in ("a.json", "b.json")})


def linted(root: Path, *named: str) -> LintReport:
    return lint(root, named, diff_options(load(root)))


def told(report: LintReport) -> list[tuple[str, str, str]]:
    return [(f.severity.value, f.kind, f.path) for f in report.findings]


def test_a_tree_without_fault_has_no_findings(repository: Repository) -> None:
    repository.write(ONE, GOLDEN)
    repository.write(NAME, LOCK)
    assert linted(repository.root) == LintReport(goldens=(ONE,), others=1)


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("{}", ("fail", "empty")),
        ('{"lm loss": ', ("fail", "unreadable")),
        (f"<<<<<<< ours\n{GOLDEN}", ("fail", "conflict-markers")),
        (golden_text(noisy(1), stop=13), ("fail", "truncated")),
        (GOLDEN.replace('    "lm loss"', '  "lm loss"', 1), ("warn", "mixed-style")),
        (GOLDEN.replace("\n", "\r\n", 1), ("warn", "mixed-style")),
    ],
    ids=["{}", "cut off", "conflict", "truncated", "indent", "line ends"],
)
def test_what_is_wrong_with_one_golden(repository: Repository, text: str, finding: tuple[str, str]) -> None:
    repository.write(ONE, text)
    repository.write(TWO, golden_text(noisy(2)))
    assert told(linted(repository.root)) == [(*finding, ONE)]


def test_a_style_of_its_own_is_a_style(repository: Repository) -> None:
    for n, text in enumerate((GOLDEN.replace("\n", "\r\n"), golden_text(noisy(1), indent=None), GOLDEN + "\n", GOLDEN)):
        repository.write(f"goldens/{n}.json", text)
    assert told(linted(repository.root)) == []


def test_nan_amid_the_values_of_a_gated_metric_fails(repository: Repository) -> None:
    blocks = json.loads(GOLDEN)
    blocks["lm loss"]["values"]["20"] = "nan"
    repository.write(ONE, json.dumps(blocks, indent=4))
    assert told(linted(repository.root)) == [("warn", "not-finite", ONE)]
    repository.write("karat.toml", '[[rules]]\nmetric = "lm loss"\nrtol = 0.05\n')
    (finding,) = linted(repository.root).findings
    assert finding.severity == "fail"
    assert finding.message.endswith("amid values; karat check gates this metric (karat.toml)")


def test_only_the_files_that_were_named_are_read(repository: Repository) -> None:
    repository.write(ONE, "{}")
    repository.write(TWO, GOLDEN)
    repository.write("notes.txt", "======= a heading\n")
    repository.write("merge.py", "a = 1\n>>>>>>> theirs\n")
    report = linted(repository.root, TWO, "notes.txt", "merge.py")
    assert (report.goldens, report.others) == ((TWO,), 2)
    assert told(report) == [("fail", "conflict-markers", "merge.py")]


def test_a_lock_must_be_one_and_sorted(repository: Repository) -> None:
    lines = LOCK.splitlines(keepends=True)
    for data, finding in (
        (LOCK[:40], ("fail", "unreadable")),
        (b"".join([lines[0], *lines[2:0:-1], *lines[3:]]), ("warn", "mixed-style")),
    ):
        repository.write(f"goldens/{NAME}", data)
        assert told(linted(repository.root, f"goldens/{NAME}")) == [(*finding, f"goldens/{NAME}")]


def test_a_tree_without_goldens_is_no_clean_one(repository: Repository) -> None:
    assert [f.kind for f in linted(repository.root).findings] == ["nothing-compared"]


def test_a_link_is_not_followed(repository: Repository) -> None:
    repository.write("elsewhere", GOLDEN)
    (repository.root / "golden_values.json").symlink_to("elsewhere")
    assert told(linted(repository.root)) == [("fail", "cannot-read", "golden_values.json")]
