from __future__ import annotations

import csv
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from factories.commands import karat, karat_here
from factories.repositories import Repository, curves, golden_path, golden_text, moved


@pytest.fixture
def refreshed(repository: Repository) -> Repository:
    """Three goldens: one moved a little, one stopped at step 13, one unchanged."""
    for case in ("quiet", "died", "still"):
        repository.write(golden_path(case), golden_text(curves(1)))
    repository.write("karat.toml", 'preset = "megatron-lm"\n')
    repository.commit()
    quiet = {**curves(1), "lm loss": moved(curves(1)["lm loss"], 1 + 2e-6)}
    repository.write(golden_path("quiet"), golden_text(quiet))
    repository.write(golden_path("died"), golden_text(curves(1), stop=13))
    return repository


@pytest.mark.slow
def test_the_report_goes_to_stdout_and_the_last_line_is_the_next_command(refreshed: Repository) -> None:
    result = karat("diff", cwd=refreshed.root)
    assert result.code == 1
    assert "2 goldens compared (1 incomplete, 1 noise) · 1 unchanged" in result.out
    assert "stops at step 13 of 50" in result.out
    assert result.err == f"next: git restore --source=HEAD -- {golden_path('died')}\n"
    assert "\x1b" not in result.out


@pytest.mark.slow
def test_the_next_command_works(refreshed: Repository) -> None:
    command = karat("diff", cwd=refreshed.root).err.removeprefix("next: ").strip()
    subprocess.run(command.split(), cwd=refreshed.root, check=True)
    assert karat("diff", cwd=refreshed.root).code == 0


def test_csv_json_markdown_and_html_files(refreshed: Repository) -> None:
    root = refreshed.root
    names = {"--csv": "r.csv", "--json": "r.json", "--markdown": "r.md", "--html": "r.html"}
    words = [word for pair in names.items() for word in pair]
    assert karat("diff", *words, cwd=root).code == 1
    rows = list(csv.DictReader(io.StringIO((root / "r.csv").read_text(encoding="utf-8"))))
    assert [row["n_steps"] for row in rows] == ["12", "13", "13", "13", "49", "50", "50", "50"]
    document = json.loads((root / "r.json").read_text(encoding="utf-8"))
    assert document["schema"] == "karat.diff/1"
    assert document["files"][0]["identity"]["platform"] == "dgx_h100"
    assert "1 finding to resolve" in (root / "r.md").read_text(encoding="utf-8")
    assert (root / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("option", ["--csv", "--json", "--markdown", "--html"])
def test_a_dash_is_stdout_and_nothing_else_is_there(refreshed: Repository, option: str) -> None:
    result = karat("diff", option, "-", cwd=refreshed.root)
    assert result.code == 1
    first = {
        "--csv": "file,metric",
        "--json": "{",
        "--markdown": "**1 of 2 goldens needs a look; 1 must not be merged: `gpt/died` (truncated)",
        "--html": "<!doctype",
    }[option]
    assert result.out.startswith(first)
    assert "Grouped by likely cause" not in result.out


def test_two_reports_on_one_stdout_are_refused(refreshed: Repository) -> None:
    result = karat("diff", "--csv", "-", "--json", "-", cwd=refreshed.root)
    assert result.code == json.loads(result.out)["exit_code"] == 2
    assert "at most one report on stdout" in result.err


@pytest.mark.parametrize(
    ("fail_on", "code"),
    [
        ((), 1),
        (("none",), 0),
        (("truncated",), 1),
        (("lost-rows",), 1),
        (("none,lost-rows",), 0),
        (("none", "truncated"), 1),
        (("info",), 1),
    ],
)
def test_fail_on(refreshed: Repository, fail_on: tuple[str, ...], code: int) -> None:
    words = [word for item in fail_on for word in ("--fail-on", item)]
    assert karat("diff", *words, cwd=refreshed.root).code == code


def test_fail_on_from_the_configuration(refreshed: Repository) -> None:
    refreshed.write("karat.toml", 'preset = "megatron-lm"\nfail_on = ["none"]\n')
    assert karat("diff", cwd=refreshed.root).code == 0


@pytest.mark.slow
def test_wrong_usage_is_2_with_a_suggestion(refreshed: Repository) -> None:
    misspelt = karat("diff", "--fail-on", "truncate", cwd=refreshed.root)
    assert misspelt.code == 2
    assert "did you mean 'truncated'?" in misspelt.err
    assert misspelt.err.splitlines()[-1].startswith("next: ")
    for words in (["--nope"], ["a", "b", "c"], ["--top", "-1"], ["--preset", "x"], ["no-such-revision"]):
        assert karat("diff", *words, cwd=refreshed.root).code == 2, words


def test_nothing_to_compare_is_3(tmp_path: Path) -> None:
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
    result = karat("diff", "a", "b", cwd=tmp_path)
    assert result.code == 3
    assert "nothing-compared" in result.out


def test_a_report_that_cannot_be_written_is_3(refreshed: Repository) -> None:
    result = karat("diff", "--csv", "no/such/folder/x.csv", cwd=refreshed.root)
    assert result.code == 3
    assert "expected to write no/such/folder/x.csv" in result.err


def test_quiet_prints_nothing(refreshed: Repository) -> None:
    result = karat("diff", "-q", cwd=refreshed.root)
    assert (result.code, result.out, result.err) == (1, "", "")


def test_it_works_from_a_folder_inside_the_repository(refreshed: Repository) -> None:
    inside = refreshed.root / "tests" / "functional_tests"
    assert "2 goldens compared" in karat("diff", cwd=inside).out


@pytest.mark.slow
@pytest.mark.parametrize("words", ["diff --top 5000", "diff --json -"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_seen_enough(repository: Repository, words: str, unbuffered: str) -> None:
    many(repository, 250)  # more than a pipe holds
    script = f"{shlex.quote(sys.executable)} -m karat {words} | head -c 10; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=repository.root,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (141, ""), "neither a failure nor a match"


def many(repository: Repository, count: int) -> None:
    for i in range(count):
        repository.write(golden_path(f"case{i:04d}"), golden_text(curves(i, steps=20)))
    repository.commit()
    for i in range(count):
        repository.write(
            golden_path(f"case{i:04d}"), golden_text(curves(i + 1, steps=20), stop=9 if i % 50 == 0 else None)
        )


@pytest.mark.slow
def test_workers_give_the_same_answer(repository: Repository) -> None:
    many(repository, 250)
    repository.write(golden_path("broken"), "{")
    alone = karat("diff", "--json", "-", "--jobs", "1", cwd=repository.root)
    together = karat("diff", "--json", "-", "--jobs", "4", cwd=repository.root)
    assert alone.code == together.code == 1
    assert alone.out == together.out
    assert json.loads(alone.out)["totals"]["files"] == 251


@pytest.mark.slow
def test_a_killed_worker_costs_nothing(repository: Repository) -> None:
    many(repository, 250)
    code = """
import os, signal, sys
from karat.diffs.diff import DiffOptions, diff
from karat.diffs import workers
from karat.diffs.report import data
here, compare = os.getpid(), workers._compare
def dies(*given):
    if os.getpid() != here:
        print("killed", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return compare(*given)
workers._compare = dies
sys.stdout.buffer.write(data.render_json(diff(options=DiffOptions(jobs=4))))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=repository.root,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.count("killed") == 3
    alone = json.loads(karat("diff", "--json", "-", "--jobs", "1", cwd=repository.root).out)
    del alone["exit_code"]  # of the command
    assert json.loads(done.stdout) == alone


@pytest.mark.slow
def test_hostile_names_reach_no_terminal(repository: Repository) -> None:
    name = "goldens/\x1b[31mred\x07\n.json"
    repository.write(name, golden_text(curves(1)))
    repository.commit()
    repository.write(name, golden_text(curves(1), stop=3))
    result = karat("diff", cwd=repository.root)
    assert result.code == 1
    assert not {"\x1b", "\x07"} & set(result.out + result.err)
    command = result.err.removeprefix("next: ")
    subprocess.run(["bash", "-c", command], cwd=repository.root, check=True)
    assert karat("diff", cwd=repository.root).code == 0, "the command works all the same"


def test_help_has_an_example() -> None:
    result = karat("diff", "--help", cwd=Path.cwd())
    assert result.code == 0
    assert "karat diff main HEAD --html report.html" in result.out


def test_in_ci_nothing_is_rewritten(refreshed: Repository) -> None:
    before = refreshed.git("status", "--porcelain")
    karat("diff", cwd=refreshed.root, CI="true")
    assert refreshed.git("status", "--porcelain") == before


@pytest.mark.slow
def test_streams_that_cannot_take_the_report(refreshed: Repository) -> None:
    words = f"{shlex.quote(sys.executable)} -m karat diff"
    for redirect in ("> /dev/full", ">&-", ">&- 2>&-"):
        done = subprocess.run(
            ["bash", "-c", f"{words} {redirect}"], cwd=refreshed.root, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr, redirect
        assert done.returncode == (3 if "full" in redirect else 1), redirect
    ascii_only = karat("diff", cwd=refreshed.root, PYTHONIOENCODING="ascii")
    assert ascii_only.code == 1
    assert "HEAD \\u2192 working tree" in ascii_only.out


def test_one_file_for_two_reports_is_refused(refreshed: Repository) -> None:
    assert karat("diff", "--csv", "x", "--json", "x", cwd=refreshed.root).code == 2


def test_dev_stdout_is_a_file_like_any_other(refreshed: Repository) -> None:
    with (refreshed.root / "out.json").open("wb") as out:
        code = subprocess.run(
            [sys.executable, "-m", "karat", "diff", "-q", "--json", "/dev/stdout"],
            cwd=refreshed.root,
            stdout=out,
            check=False,
        ).returncode
    assert code == 1
    assert json.loads((refreshed.root / "out.json").read_bytes())["schema"] == "karat.diff/1"


def test_what_is_staged_is_compared_and_nothing_else(refreshed: Repository) -> None:
    changed = [line[3:] for line in refreshed.git("status", "--porcelain").splitlines()]
    refreshed.git("add", "--", changed[0])
    result = karat_here("diff", "--cached", "--json", "-", cwd=refreshed.root)
    found = json.loads(result.out)
    assert (found["new"], [file["path"] for file in found["files"]]) == ("index", changed[:1])
    advised = {f["next"] for file in found["files"] for f in file["findings"]}
    assert all(command.startswith("karat diff HEAD --cached --only ") for command in advised)
    both = karat_here("diff", "--cached", "HEAD", "HEAD", cwd=refreshed.root)
    assert (both.code, both.err.splitlines()[0]) == (
        2,
        "karat: expected at most one revision beside --cached, found HEAD and HEAD",
    )


def test_reports_for_a_ci(refreshed: Repository) -> None:
    place = refreshed.root / "summary.md"
    environment = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(place)}
    result = karat_here("diff", "--junit", "diff.xml", "-q", cwd=refreshed.root, **environment)
    assert result.code == 1
    assert result.out.startswith("::error file=")
    assert result.out.count("::error ") <= 10
    assert place.read_text().startswith("**")
    assert '<testsuites name="karat diff"' in (refreshed.root / "diff.xml").read_text()
    assert karat_here("diff", "-q", "--no-github", cwd=refreshed.root, **environment).out == ""
