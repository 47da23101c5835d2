from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest

from factories.commands import Outcome, karat
from factories.faults import Fault
from factories.forge import Forge
from factories.forge_github import GitHubPull
from factories.policy_ranges import POLICY, PolicyRange, key, sign
from karat import schemas as published

REPO = "octo/goldens"
TOKEN = "ghp_Planted+Secret/7f3a9c"  # noqa: S105 - planted, to be looked for
CI = ("GITHUB_ACTIONS", "GITHUB_REF", "GITHUB_EVENT_PATH", "GITHUB_REPOSITORY", "GITLAB_CI")


@pytest.fixture
def tree(tmp_path: Path) -> PolicyRange:
    made = PolicyRange(tmp_path / "mein Prüfstand")
    made.skip()
    return made


@pytest.fixture
def pull(forge: Forge, tree: PolicyRange) -> GitHubPull:
    head = tree.repository.git("rev-parse", "HEAD").strip()
    forge.github.teams["octo/numerics"] = ["erin"]
    return forge.github.pull(REPO, 7, author="alice", head=head)


def ask(tree: PolicyRange, *words: str, forge: Forge | None = None, **env: str) -> Outcome:
    """Runs it, and holds the report against the schema."""
    where = {"GITHUB_API_URL": forge.github_url, "GITHUB_TOKEN": forge.github.token} if forge else {}
    clean = dict.fromkeys(CI, "")
    report = tree.root.parent / "report.json"
    report.unlink(missing_ok=True)
    words = ("policy", "approvals", "--base", "main", *words, "--json", str(report))
    done = karat(*words, cwd=tree.root, **{**clean, **where, **env})
    if report.exists():
        document = json.loads(report.read_bytes())
        schema = published.schema("karat.policy-approvals/1")
        jsonschema.validate(document, schema)
        assert document["exit_code"] == done.code
    else:
        assert done.code in {2, 3}
    return done


@pytest.mark.slow
def test_approved(tree: PolicyRange, pull: GitHubPull, forge: Forge) -> None:
    pull.review("bob")
    done = ask(tree, "--pr", "7", "--repo", REPO, forge=forge)
    assert (done.code, done.err) == (0, "")
    assert "1 change to approve: 1 approved" in done.out
    assert "@bob" in done.out


@pytest.mark.slow
def test_missing_says_why_and_what_to_do(tree: PolicyRange, pull: GitHubPull, forge: Forge) -> None:
    pull.review("bob", commit="0" * 40)
    done = ask(tree, "--pr", "7", "--repo", REPO, forge=forge)
    assert done.code == 1
    row = done.out.partition("\n\n")[0]
    for word in (
        "missing",
        "gradient",
        "TestHurried",
        "in a hurry",
        "tests/test_ops.py:",
        "@bob or @octo/numerics",
        "their approval is of 000000000000, not of the head",
    ):
        assert word in row
    assert done.err == f"next: gh pr edit 7 --repo {REPO} --add-reviewer bob,octo/numerics\n"


@pytest.mark.slow
def test_the_next_command_asks_about_the_same_request(tree: PolicyRange, pull: GitHubPull, forge: Forge) -> None:
    pull.review("bob")
    forge.faults.add(Fault(pattern="/reviews", status=200, body=b"<html>", times=None))
    done = ask(tree, "--head", "topic", "--pr", "7", "--repo", REPO, forge=forge)
    assert done.code == 3
    again = f"next: karat policy approvals --base main --head topic --pr 7 --repo {REPO}\n"
    assert done.err.endswith(again)


@pytest.mark.slow
def test_run_from_a_folder_further_down(tree: PolicyRange, pull: GitHubPull, forge: Forge) -> None:
    pull.review("bob")
    env = {"GITHUB_API_URL": forge.github_url, "GITHUB_TOKEN": forge.github.token}
    words = ("policy", "approvals", "--base", "main", "--pr", "7", "--repo", REPO)
    done = karat(*words, cwd=tree.root / "tests", **{**dict.fromkeys(CI, ""), **env})
    assert done.code == 0


@pytest.mark.slow
def test_in_a_workflow_nothing_need_be_said(tree: PolicyRange, pull: GitHubPull, forge: Forge) -> None:
    pull.review("bob")
    env = {"GITHUB_ACTIONS": "true", "GITHUB_REF": "refs/pull/7/merge", "GITHUB_REPOSITORY": REPO}
    assert ask(tree, forge=forge, **env).code == 0


@pytest.mark.slow
def test_locally_it_lists_what_will_need_an_approval(tree: PolicyRange) -> None:
    done = ask(tree)
    assert done.code == 3
    assert "TestHurried" in done.out
    assert "no approvals were checked: pass --pr N" in done.out
    assert done.err == "next: karat policy approvals --base main --pr N\n"


def test_nothing_to_approve(tmp_path: Path) -> None:
    tree = PolicyRange(tmp_path / "r")
    tree.write("README", "more")
    tree.commit()
    done = ask(tree)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("nothing to approve: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("--pr", "0"), ("--pr", "1", "--merge-request", "2"), ("--sign-off", "nowhere.toml")]
)
def test_wrong_usage_is_2(tree: PolicyRange, words: tuple[str, ...]) -> None:
    done = ask(tree, *words)
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("next: ") or "Error" in done.err


def test_without_approvers_it_says_how(tmp_path: Path) -> None:
    tree = PolicyRange(tmp_path / "r", "")
    tree.write("karat.toml", POLICY)  # the branch's own do not count
    tree.skip()
    done = ask(tree)
    assert done.code == 2
    assert 'approvers = {default = ["@org/numerics", "CODEOWNERS"]}' in done.err
    assert "a branch does not appoint its own approvers" in done.err


@pytest.mark.slow
def test_a_syntax_error_cannot_be_verified(tree: PolicyRange, pull: GitHubPull, forge: Forge) -> None:
    tree.write("tests/test_broken.py", "def f(:\n")
    pull.head = tree.commit()
    pull.review("bob")
    done = ask(tree, "--pr", "7", "--repo", REPO, forge=forge)
    assert done.code == 3
    assert "cannot-read: tests/test_broken.py" in done.out


def test_outside_of_a_repository(tmp_path: Path) -> None:
    done = karat("policy", "approvals", "--base", "main", cwd=tmp_path)
    assert done.code == 2
    assert "expected a git work tree" in done.err
    assert "next: cd REPOSITORY && karat policy approvals" in done.err


@pytest.mark.slow
def test_a_list_from_printing_to_signing_to_passing(tmp_path: Path) -> None:
    private, public = key(tmp_path, "bob-key")
    allowed = {".karat/allowed_signers": f"bob {public}\n"}
    tree = PolicyRange(tmp_path / "r", **allowed)
    tree.skip()
    printed = karat("policy", "approvals", "--base", "main", "--print-sign-off", cwd=tree.root)
    assert (printed.code, printed.err) == (0, "")
    schema = published.schema("karat.sign-off/1")
    jsonschema.validate(tomllib.loads(printed.out), schema)
    file = tmp_path / "sign-off.toml"
    file.write_text(printed.out, encoding="utf-8")
    assert ask(tree, "--sign-off", str(file)).code == 1
    sign(private, file)
    done = ask(tree, "--sign-off", str(file))
    assert done.code == 0
    assert "bob (sign-off.toml.sig)" in done.out


@pytest.mark.slow
def test_json_on_stdout_is_nothing_else(tree: PolicyRange, pull: GitHubPull, forge: Forge) -> None:
    pull.review("bob")
    env = {"GITHUB_API_URL": forge.github_url, "GITHUB_TOKEN": forge.github.token}
    words = ("policy", "approvals", "--base", "main", "--pr", "7", "--repo", REPO, "--json", "-")
    done = karat(*words, cwd=tree.root, **env)
    (change,) = json.loads(done.out)["changes"]
    assert (change["state"], change["approved_by"]) == ("approved", ["@bob"])


@pytest.mark.slow
def test_names_from_the_repository_are_printed_safely(tree: PolicyRange) -> None:
    tree.edit("tests/test_ops.py", "in a hurry", "\\x1b[2J##[error]")
    tree.commit()
    done = ask(tree)
    assert "\x1b" not in done.out
    assert "##[" not in done.out


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["none", "wrong", "forbidden", "gone", "redirect"])
def test_a_planted_token_is_found_nowhere(tree: PolicyRange, pull: GitHubPull, forge: Forge, trouble: str) -> None:
    forge.github.tokens = {TOKEN} if trouble != "wrong" else {"another"}
    pull.review("erin")
    if trouble == "forbidden":
        forge.faults.forbidden("/reviews")
    elif trouble == "gone":
        forge.github.repositories.clear()
    elif trouble == "redirect":
        away = {"location": f"{forge.blobs.host.url}/elsewhere"}
        forge.faults.add(Fault(pattern="/reviews", status=302, headers=away, body=b"", times=None))
    loud = "import logging, sys; logging.basicConfig(level=1); from karat.cli import run; sys.exit(run(sys.argv[1:]))"
    words = ("policy", "approvals", "--base", "main", "--pr", "7", "--repo", REPO, "--json", "r.json")
    env = {**os.environ, **dict.fromkeys(CI, ""), "GITHUB_API_URL": forge.github_url, "GITHUB_TOKEN": TOKEN}
    done = subprocess.run(
        [sys.executable, "-c", loud, *words], cwd=tree.root, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == (0 if trouble == "none" else 3)
    written = [p.read_bytes() for p in tree.root.rglob("*.json")]
    assert TOKEN not in done.stdout + done.stderr
    assert not any(TOKEN.encode() in data for data in written)
    assert all("authorization" not in request.headers for request in forge.seen(host="blob"))


def test_help_has_examples_and_the_parts_sentence() -> None:
    from karat.cli.policy import COMMANDS

    done = karat("policy", "approvals", "--help", cwd=Path.cwd())
    assert done.code == 0
    assert COMMANDS["approvals"] in " ".join(done.out.split())
    assert "Examples:" in done.out
