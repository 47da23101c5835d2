from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from factories.approved import FILE, REPO, World
from factories.forge import Forge
from factories.forge_github import GitHubPull
from factories.policy_ranges import NEW_SKIP, TEST, PolicyRange
from karat.findings import CannotVerify, UsageError
from karat.policy.approvals.check import approvals
from karat.policy.approvals.request import Options


@pytest.fixture
def world(tmp_path: Path, forge: Forge) -> World:
    return World(PolicyRange(tmp_path / "mein Prüfstand"), forge)


def test_a_list_of_commits_that_github_cuts_off(world: World) -> None:
    world.pull.review("bob")
    for number in range(260):
        world.pull.commit(f"{number:040d}", "alice")
    with pytest.raises(CannotVerify, match="has 250 commits or more; GitHub names the authors of fewer than 250"):
        world.ask()


@pytest.mark.slow
def test_the_merge_that_github_checks_out_is_not_what_was_reviewed(world: World) -> None:
    git = world.tree.repository.git
    git("checkout", "--quiet", "--detach", "main")
    git("merge", "--quiet", "--no-ff", "-m", "Merge 7 into main", "topic")
    world.pull.review("bob")
    told = world.ask()
    assert (told.exit_code, told.head) == (0, world.head)


def test_another_commit_than_the_requests_head_cannot_be_verified(world: World) -> None:
    world.pull.review("bob")
    world.tree.write("README", "not pushed")
    world.tree.commit()
    with pytest.raises(CannotVerify, match="approvals of one say nothing about the other"):
        world.ask()


def test_a_push_while_it_is_being_read(world: World) -> None:
    world.pull.review("bob")

    class Moving(GitHubPull):
        @property
        def head(self) -> str:
            asked = len(world.forge.seen(r"/pulls/7$"))
            return world.head if asked < 2 else "9" * 40

        @head.setter
        def head(self, _: str) -> None: ...

    moving = Moving(number=7, author="alice", head="", merge=None, ids=world.pull.ids)
    world.forge.github.repository(REPO).pulls[7] = moving
    with pytest.raises(CannotVerify, match="somebody pushed to pull request 7 of octo/goldens while it was being read"):
        world.ask()


def test_nothing_to_approve_asks_nobody(tmp_path: Path, forge: Forge) -> None:
    tree = PolicyRange(tmp_path / "r")
    tree.write(FILE, TEST.replace("0.01", "0.001"))
    tree.commit()
    told = approvals(tree.root, Options(base="main", pull=7, repo=REPO, env={}))
    assert (told.exit_code, told.judged, told.files) == (0, (), 1)
    assert forge.requests == []


def test_an_empty_range_is_not_a_pass(tmp_path: Path) -> None:
    tree = PolicyRange(tmp_path / "r")
    told = approvals(tree.root, Options(base="main"))
    assert (told.exit_code, [f.kind for f in told.findings]) == (3, ["nothing-compared"])


def test_without_a_request_nobody_was_asked(world: World) -> None:
    told = approvals(world.tree.root, Options(base="main"))
    assert told.exit_code == 3
    assert "no approvals were checked: pass --pr N" in told.findings[0].message
    assert told.judged[0].needed == ("@bob", "@octo/numerics")
    assert told.judged[0].state == "unknown"


def test_a_rule_without_approvers(tmp_path: Path, forge: Forge) -> None:
    world = World(PolicyRange(tmp_path / "r", '[policy]\napprovers = {tolerance = ["@a"]}\n'), forge)
    with pytest.raises(UsageError, match="for the rule gradient"):
        world.ask()


VARIABLES: dict[str, dict[str, str]] = {
    "ref": {"GITHUB_ACTIONS": "true", "GITHUB_REF": "refs/pull/7/merge"},
    "event": {"GITHUB_ACTIONS": "true", "GITHUB_REF": "refs/heads/x", "GITHUB_EVENT_PATH": "event.json"},
}


@pytest.mark.parametrize("how", VARIABLES)
def test_the_ci_says_which_request(world: World, tmp_path: Path, how: str) -> None:
    world.pull.review("bob")
    (tmp_path / "event.json").write_bytes(msgspec.json.encode({"pull_request": {"number": 7}}))
    env = {
        "GITHUB_API_URL": world.forge.github_url,
        "GITHUB_TOKEN": world.forge.github.token,
        "GITHUB_REPOSITORY": REPO,
        **VARIABLES[how],
    }
    if "GITHUB_EVENT_PATH" in env:
        env["GITHUB_EVENT_PATH"] = str(tmp_path / env["GITHUB_EVENT_PATH"])
    assert world.ask(pull=None, repo=None, env=env).exit_code == 0


NONSENSE = ["refs/pull/0/merge", f"refs/pull/{'9' * 5000}/merge", "refs/pull/\u0667/merge"]


@pytest.mark.parametrize("ref", NONSENSE)
@pytest.mark.parametrize("event", ["-5", "1e400", '"7"', "9" * 5000])
def test_a_ci_that_says_nonsense_names_no_request(world: World, tmp_path: Path, ref: str, event: str) -> None:
    (tmp_path / "event.json").write_text(f'{{"pull_request": {{"number": {event}}}}}')
    env = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_PATH": str(tmp_path / "event.json")}
    told = world.ask(pull=None, env={**env, "GITHUB_REF": ref})
    assert "no approvals were checked: pass --pr N" in told.findings[0].message


@pytest.mark.parametrize(
    "url", ["https://user:secret@example.org/octo/goldens.git", "git@example.org:octo/goldens.git"]
)
def test_the_remote_says_which_repository(world: World, url: str) -> None:
    world.pull.review("bob")
    world.tree.repository.git("remote", "add", "origin", url)
    assert world.ask(repo=None).exit_code == 0


@pytest.mark.parametrize("repo", ["goldens", "../..", "a/b/c", "a b/c"])
def test_odd_repositories_are_refused(world: World, repo: str) -> None:
    with pytest.raises(UsageError, match="expected OWNER/NAME"):
        world.ask(repo=repo)


def test_both_forges_at_once_are_refused(world: World) -> None:
    with pytest.raises(UsageError, match="found both"):
        world.ask(merge=3)


def test_a_second_waiver_needs_no_second_question(world: World) -> None:
    world.tree.write(FILE, TEST + NEW_SKIP + NEW_SKIP.replace("Hurried", "Late"))
    world.push()
    world.pull.review("erin")
    assert len(world.ask().judged) == 2
    assert len(world.forge.seen("/teams/")) == 1
