from __future__ import annotations

import json
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from factories.commands import karat
from factories.repositories import Repository, curves, golden_path, golden_text

GOLDEN = golden_path("case")
CLEAN = {"GITHUB_ACTIONS": "", "GITHUB_RUN_ID": "", "CI_PIPELINE_ID": "", "KARAT_TODAY": ""}


@pytest.fixture
def project(repository: Repository) -> Repository:
    repository.write("karat.toml", 'preset = "megatron-lm"\n')
    repository.write(".gitignore", "out/\n")
    repository.write(GOLDEN, golden_text(curves(1)))
    repository.commit()
    repository.write("out/good.json", golden_text(curves(1)))
    worse = {**curves(1), "lm loss": curves(1)["lm loss"] * 1.2}
    repository.write("out/worse.json", golden_text(worse))
    repository.write("out/died.json", golden_text(curves(1), stop=13))
    return repository


@pytest.mark.slow
def test_a_good_result_passes_and_says_how_close_it_was(project: Repository) -> None:
    found = karat("check", "out/good.json", "--golden", GOLDEN, cwd=project.root, **CLEAN)
    assert (found.code, found.err) == (0, "")
    assert "lm loss  50 steps within tolerance" in found.out
    assert found.out.splitlines()[0].startswith("pass  1 golden: 1 pass;")


@pytest.mark.slow
def test_a_failure_says_everything(project: Repository) -> None:
    found = karat("check", "out/worse.json", "--golden", GOLDEN, cwd=project.root, **CLEAN)
    assert found.code == 1
    for words in (
        "lm loss  50 of 50 steps out of tolerance (1 allowed)",
        "first  step 1: expected",
        "rel 20.00%",
        "likely scaled by 1.2 at every step",
        "rule   approx, rtol 0.05 [lm loss, preset megatron-lm]",
        f"karat record out/worse.json -o {GOLDEN}",
    ):
        assert words in found.out


@pytest.mark.slow
def test_a_run_that_died_is_named_once(project: Repository) -> None:
    found = karat("check", "out/died.json", "--golden", GOLDEN, cwd=project.root, **CLEAN)
    assert found.code == 1
    assert "truncated: the run stops at step 13 of 50" in found.out
    assert found.out.count("step 13") == 1
    assert "likely" not in found.out
    assert "karat record" not in found.out


@pytest.mark.slow
def test_auto_finds_the_golden_by_identity(project: Repository) -> None:
    words = ("check", "out/good.json", "--identity", "case=case", "--identity", "platform=dgx_h100")
    assert karat(*words, cwd=project.root, **CLEAN).code == 0
    missing = karat("check", "out/good.json", cwd=project.root, **CLEAN)
    assert (missing.code, "missing-golden" in missing.out) == (1, True)
    project.write(golden_path("case", "dgx_a100"), golden_text(curves(1)))
    several = karat(*words[:4], cwd=project.root, **CLEAN)
    assert (several.code, "found 2 by its identity" in several.err) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("check",),
        ("check", "x", "--identity", "case"),
        ("check", "x", "--improved", "ignore"),
        ("check", "x", "--json", "-", "--junit", "-"),
        ("check", "out", "--golden", GOLDEN),
    ],
)
def test_wrong_usage_is_2(project: Repository, words: tuple[str, ...]) -> None:
    assert karat(*words, cwd=project.root, **CLEAN).code == 2


def test_a_day_that_is_none_is_wrong_usage(project: Repository) -> None:
    found = karat("check", "out/good.json", "--golden", GOLDEN, cwd=project.root, **{**CLEAN, "KARAT_TODAY": "soon"})
    assert (found.code, "KARAT_TODAY" in found.err) == (2, True)


@pytest.mark.slow
def test_an_unreadable_golden_is_3(project: Repository) -> None:
    project.write("out/broken.json", '{"a": ')
    found = karat("check", "out/good.json", "--golden", "out/broken.json", cwd=project.root, **CLEAN)
    assert (found.code, "cannot-verify" in found.out) == (3, True)


@pytest.mark.slow
def test_json_is_data_and_nothing_else(project: Repository) -> None:
    found = karat("check", "out/worse.json", "--golden", GOLDEN, "--json", "-", "--github", cwd=project.root, **CLEAN)
    document = json.loads(found.out)
    assert (document["outcome"], document["exit_code"], found.code) == ("fail", 1, 1)
    assert found.err.startswith("::error file=")
    assert found.err.splitlines()[-1].startswith("next: karat diff ")


@pytest.mark.slow
def test_quiet_is_quiet_and_files_are_written(project: Repository) -> None:
    found = karat(
        "check",
        "out/worse.json",
        "--golden",
        GOLDEN,
        "-q",
        "--junit",
        "out/c.xml",
        "--json",
        "out/c.json",
        cwd=project.root,
        **CLEAN,
    )
    assert (found.code, found.out, found.err) == (1, "", "")
    assert json.loads((project.root / "out/c.json").read_text())["schema"] == "karat.check/1"
    root = ET.fromstring((project.root / "out/c.xml").read_text())  # noqa: S314 - our own text
    assert root.attrib["failures"] == "1"


@pytest.mark.slow
def test_on_github_there_are_annotations_and_a_summary(project: Repository, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    there = {
        **CLEAN,
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(summary),
        "GITHUB_RUN_ID": "42",
        "GITHUB_REPOSITORY": "o/n",
    }
    words = ("check", "out/worse.json", "--golden", GOLDEN)
    found = karat(*words, cwd=project.root, **there)
    annotations = [line for line in found.out.splitlines() if line.startswith("::")]
    assert len(annotations) == 1
    assert annotations[0].startswith(f"::error file={GOLDEN},title=karat check%3A out-of-tolerance::")
    written = summary.read_text()
    assert written.startswith("before\n## karat check: fail: 1 of 1 golden, ")
    assert "`lm loss`" in written
    assert "--repo o/n --run-id 42 --scope only-failing" in written
    quiet = karat(*words, "--no-github", cwd=project.root, **there)
    assert "::error" not in quiet.out
    assert summary.read_text() == written


@pytest.mark.slow
def test_exemptions_hold_until_their_day(project: Repository) -> None:
    project.write(
        "karat.toml",
        'preset = "megatron-lm"\n[[exempt]]\nkind = "flaky"\nmetric = "lm loss"\nowner = "@me"\n'
        'reason = "races"\nlink = "https://example.com/1"\nexpires = 2026-06-01\n',
    )
    words = ("check", "out/worse.json", "--golden", GOLDEN)
    before = karat(*words, cwd=project.root, **{**CLEAN, "KARAT_TODAY": "2026-06-01"})
    after = karat(*words, cwd=project.root, **{**CLEAN, "KARAT_TODAY": "2026-06-02"})
    assert (before.code, "exempted" in before.out) == (0, True)
    assert "flaky until 2026-06-01: races (@me, https://example.com/1)" in before.out
    assert (after.code, "exemption-expired" in after.out) == (1, True)


@pytest.mark.slow
def test_the_configuration_sets_what_improved_and_unknown_mean(project: Repository) -> None:
    better = {**curves(1), "iteration-time": curves(1)["iteration-time"] * 0.5, "new": curves(2)["lm loss"]}
    project.write("out/better.json", golden_text(better))
    words = ("check", "out/better.json", "--golden", GOLDEN)
    assert karat(*words, cwd=project.root, **CLEAN).code == 1  # the suite's own gate is two-sided
    rule = '[[rules]]\nmetric = "iteration-time"\nbetter = "lower"\n'
    for setting, code in (('improved = "warn"', 0), ('improved = "fail"', 1), ('unknown = "fail"', 1)):
        project.write("karat.toml", f'preset = "megatron-lm"\n{rule}[check]\n{setting}\n')
        assert karat(*words, cwd=project.root, **CLEAN).code == code
        allowed = karat(*words, "--improved", "warn", cwd=project.root, **CLEAN)
        assert allowed.code == int("unknown" in setting)


TABLE = "name,accuracy,graph_breaks\na,pass,3\nb,pass,11\nc,fail_to_run,3\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "actual",
    [
        TABLE.replace("pass,11", "pass,13"),
        TABLE.replace("pass,11", "pass,9"),
        TABLE.replace("a,pass,3\n", ""),
        TABLE.replace("fail_to_run,3", "pass,8"),
    ],
)
def test_the_command_that_takes_a_result_takes_it(tmp_path: Path, actual: str) -> None:
    (tmp_path / "golden.csv").write_text(TABLE)
    (tmp_path / "actual.csv").write_text(actual)
    words = ("check", "actual.csv", "--golden", "golden.csv", "--improved", "fail", "--json", "-")
    before = karat(*words, cwd=tmp_path, **CLEAN)
    assert before.code == 1
    command = shlex.split(json.loads(before.out)["checks"][0]["refresh"])
    assert command[0] == "karat"
    karat(*command[1:], cwd=tmp_path, **CLEAN)
    assert karat(*words, cwd=tmp_path, **CLEAN).code == 0


@pytest.mark.slow
@pytest.mark.parametrize(("result", "code"), [("good", 3), ("worse", 1)])
@pytest.mark.parametrize("how", ["summary", "json", "junit"])
def test_a_report_that_cannot_be_written_does_not_unsay_a_failure(
    project: Repository, tmp_path: Path, result: str, code: int, how: str
) -> None:
    nowhere = str(tmp_path / "nowhere" / "report")
    words = ("check", f"out/{result}.json", "--golden", GOLDEN)
    more: tuple[str, ...] = (f"--{how}", nowhere) if how != "summary" else ("--github",)
    there = {**CLEAN, "GITHUB_STEP_SUMMARY": nowhere}
    found = karat(*words, *more, cwd=project.root, **there)
    assert found.code == code
    assert f"{nowhere}, but: No such file or directory\nnext: ls -ld" in found.err
    assert f"out/{result}.json  against" in found.out


@pytest.mark.slow
def test_a_golden_is_never_checked_against_itself(project: Repository) -> None:
    found = karat("check", GOLDEN, "--golden", GOLDEN, cwd=project.root, **CLEAN)
    assert (found.code, found.out) == (2, "")
    command = found.err.splitlines()[-1].removeprefix("next: ")
    again = karat(*shlex.split(command)[1:], cwd=project.root, **CLEAN)
    assert again.code == 0


@pytest.mark.slow
def test_a_folder_of_goldens_that_is_not_there_is_named(project: Repository) -> None:
    found = karat("check", "out", "--golden", "nowhere", cwd=project.root, **CLEAN)
    assert found.code == 2
    assert "expected a folder of goldens for the folder out, found nowhere, which is none" in found.err


@pytest.mark.slow
def test_processes_give_the_same_answer(tmp_path: Path) -> None:
    for number in range(250):
        name = f"case{number:03d}/golden_values.json"
        for side, seed in (("goldens", number), ("results", number + (number % 40 == 0))):
            path = tmp_path / side / name
            path.parent.mkdir(parents=True)
            path.write_text(
                golden_text(curves(seed, steps=20), stop=9 if number == 7 and seed else None), encoding="utf-8"
            )
    (tmp_path / "results/case003/golden_values.json").unlink()
    (tmp_path / "goldens/case005/golden_values.json").write_text("{", encoding="utf-8")
    alone, together = (
        karat("check", "results", "--golden", "goldens", "--json", "-", "--jobs", jobs, cwd=tmp_path) for jobs in "14"
    )
    assert alone.code == together.code == 1
    assert alone.out == together.out
    outcomes = {c["outcome"] for c in json.loads(alone.out)["checks"]}
    assert outcomes >= {"fail", "pass", "missing-actual", "cannot-verify"}
