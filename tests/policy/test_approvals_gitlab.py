"""Approvals of real ranges on GitLab, which knows who approves, and not what they looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from factories.clocks import Clock
from factories.forge import Forge
from factories.forge_gitlab import GitLabMergeRequest
from factories.policy_ranges import PolicyRange
from karat.findings import CannotVerify, UsageError
from karat.policy.approvals.check import Approvals, approvals
from karat.policy.approvals.request import Options

PROJECT = "octo/numerics/goldens"
POLICY = '[policy]\nforge = "gitlab"\napprovers = {default = ["@bob", "@octo/experts", "@reviewers"]}\n'


class World:
    def __init__(self, tree: PolicyRange, forge: Forge, *, tells_when: bool = True) -> None:
        self.tree, self.forge = tree, forge
        self.head = tree.skip()
        self.request: GitLabMergeRequest = forge.gitlab.merge_request(
            PROJECT, 5, author="alice", head=self.head, tells_when=tells_when
        )
        forge.gitlab.groups |= {"octo/experts": ["dora"], "reviewers": ["erin"]}

    def ask(self, **more: Any) -> Approvals:
        env = {"CI_API_V4_URL": self.forge.gitlab_url, "GITLAB_TOKEN": self.forge.gitlab.token}
        options = {"base": "main", "merge": 5, "repo": PROJECT, "env": env}
        retry = Clock().retry(attempts=2)
        return approvals(self.tree.root, Options(**{**options, "retry": retry, **more}))


@pytest.fixture(params=[True, False], ids=["tells when", "only notes tell"])
def world(tmp_path: Path, forge: Forge, request: pytest.FixtureRequest) -> World:
    return World(PolicyRange(tmp_path / "r", POLICY), forge, tells_when=request.param)


def why(told: Approvals) -> str:
    (one,) = told.judged
    return "; ".join(one.missing)


@pytest.mark.parametrize("who", ["bob", "dora", "erin"])
def test_approved_by_a_person_or_a_member_of_a_group(world: World, who: str) -> None:
    world.request.approve(who)
    told = world.ask()
    assert (told.exit_code, told.findings) == (0, ())
    assert told.judged[0].approved_by == (f"@{who}",)


def push_again(world: World) -> None:
    world.tree.write("README", "more")
    world.request.push(world.tree.commit())


def push_back(world: World) -> None:
    world.request.push("9" * 40)
    world.request.push(world.head)


Step = Callable[[World], object]
APPROVE: Step = lambda w: w.request.approve("bob")  # noqa: E731 - a step like the others
NOREPLY = "12-bob@users.noreply.gitlab.com"
MISSING: dict[str, tuple[list[Step], str]] = {
    "nobody": ([], "no approver has approved"),
    "somebody else": ([lambda w: w.request.approve("mallory")], "@mallory approved, but may not"),
    "withdrawn": ([APPROVE, lambda w: w.request.withdraw("bob")], "no approver has approved"),
    "before the last push": ([APPROVE, push_again], "before the head was pushed"),
    "before the same head came again": ([APPROVE, push_back], "before the head was pushed"),
    "changes requested": (
        [APPROVE, lambda w: w.request.states.update(bob="requested_changes")],
        "@bob: their latest review requests changes",
    ),
    "the author": (
        [lambda w: setattr(w.request, "author", "bob"), APPROVE],
        "@bob: is the author of the merge request",
    ),
    "a committer, by the forge's own address": (
        [lambda w: w.request.commit("c" * 40, "x@example.org", committer=NOREPLY), APPROVE],
        "@bob: committed cccccccccccc",
    ),
    "a committer, by the address he shows": (
        [
            lambda w: w.forge.gitlab.emails.update(bob="bob@example.org"),
            lambda w: w.request.commit("c" * 40, "Bob@example.org"),
            APPROVE,
        ],
        "@bob: wrote commit cccccccccccc",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", MISSING)
def test_what_is_no_approval(world: World, what: str) -> None:
    steps, expected = MISSING[what]
    for step in steps:
        step(world)
    told = world.ask()
    assert told.exit_code == 1
    assert expected in why(told)
    expected = f"glab mr update 5 --repo {PROJECT} --reviewer bob,octo/experts,reviewers"
    assert told.findings[0].next == expected


def test_the_hundredth_reviewer_is_heard_too(world: World) -> None:
    world.request.approve("bob")
    world.request.states |= {f"r{i}": "unreviewed" for i in range(130)} | {"bob": "requested_changes"}
    assert "@bob: their latest review requests changes" in why(world.ask())


def test_approved_again_after_the_push(world: World) -> None:
    world.request.approve("bob")
    push_again(world)
    world.request.withdraw("bob")
    world.request.approve("bob")
    assert world.ask().exit_code == 0


def test_merges_make_nobody_an_author(world: World) -> None:
    world.request.commit("c" * 40, "12-bob@users.noreply.gitlab.com", parents=2)
    world.request.approve("bob")
    assert world.ask().exit_code == 0


def test_when_nobody_tells_when_it_was(world: World) -> None:
    world.request.approve("bob")
    world.request.notes.clear()
    told = world.ask()
    if world.request.tells_when:
        assert told.exit_code == 0
    else:
        assert "GitLab does not say when they approved" in why(told)


def test_a_version_that_lags_behind_the_head(world: World) -> None:
    world.request.approve("bob")
    world.request.versions[-1] = ("8" * 40, world.request.versions[-1][1])
    assert "does not say when the head was pushed" in why(world.ask())


def test_a_group_that_cannot_be_seen(world: World) -> None:
    world.forge.gitlab.groups.clear()
    world.request.approve("dora")
    told = world.ask()
    assert told.exit_code == 3
    assert "who is in @octo/experts could not be read (HTTP 404)" in told.findings[0].message


def test_roles_of_the_project(tmp_path: Path, forge: Forge) -> None:
    policy = '[policy]\nforge = "gitlab"\napprovers = {default = ["CODEOWNERS"]}\n'
    tree = PolicyRange(tmp_path / "r", policy, CODEOWNERS="* @@maintainer\n")
    world = World(tree, forge)
    forge.gitlab.project(PROJECT).members = {"erin": 30, "dora": 40}
    world.request.approve("erin")
    assert world.ask().exit_code == 1
    world.request.approve("dora")
    assert world.ask().exit_code == 0


@pytest.mark.slow
def test_sections_each_have_their_say(tmp_path: Path, forge: Forge) -> None:
    policy = '[policy]\nforge = "gitlab"\napprovers = {default = ["CODEOWNERS"]}\n'
    owners = "[Tests][2] @bob @dora @zoe\ntests/\n[All]\n* @carol\n^[Maybe] @erin\n*\n"
    world = World(PolicyRange(tmp_path / "r", policy, **{".gitlab/CODEOWNERS": owners}), forge)
    world.request.approve("bob")
    world.request.approve("carol")
    assert "Tests: 1 of 2 approvals" in why(world.ask())
    world.request.approve("dora")
    assert world.ask().exit_code == 0
    world.request.withdraw("carol")
    told = world.ask()
    assert (told.exit_code, told.judged[0].state) == (1, "missing")
    assert "All: 0 of 1 approvals" in why(told)


def test_a_job_token_that_may_not_ask(world: World) -> None:
    world.request.approve("bob")
    world.forge.faults.forbidden("/approvals", status=401)
    env = {"CI_API_V4_URL": world.forge.gitlab_url, "CI_JOB_TOKEN": world.forge.gitlab.job_token}
    with pytest.raises(CannotVerify, match="CI_JOB_TOKEN") as caught:
        world.ask(env=env)
    assert caught.value.next_command == "export GITLAB_TOKEN=YOUR_TOKEN"


def test_the_ci_says_which_request(world: World) -> None:
    world.request.approve("bob")
    project = world.forge.gitlab.project(PROJECT).id
    env = {
        "CI_API_V4_URL": world.forge.gitlab_url,
        "GITLAB_TOKEN": world.forge.gitlab.token,
        "GITLAB_CI": "true",
        "CI_PROJECT_ID": "1",  # of the fork
        "CI_MERGE_REQUEST_PROJECT_ID": str(project),
        "CI_MERGE_REQUEST_IID": "5",
    }
    assert world.ask(merge=None, repo=None, env=env).exit_code == 0


def test_no_such_request(world: World) -> None:
    with pytest.raises(CannotVerify, match="merge request 6"):
        world.ask(merge=6)
    with pytest.raises(UsageError, match="a project on GitLab"):
        world.ask(repo="goldens")
