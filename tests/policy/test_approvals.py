"""Approvals of real ranges, by reviews that a forge on loopback has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from factories.approved import FILE, REPO, World
from factories.faults import Fault
from factories.forge import Forge
from factories.forge_github import GitHubPull
from factories.policy_ranges import POLICY, PolicyRange
from karat.findings import CannotVerify
from karat.policy.approvals.check import Approvals

OLD = "0" * 39 + "1"


@pytest.fixture
def world(tmp_path: Path, forge: Forge) -> World:
    return World(PolicyRange(tmp_path / "mein Prüfstand"), forge)


def why(told: Approvals) -> str:
    (one,) = told.judged
    return "; ".join(one.missing)


def test_approved_by_somebody_who_may(world: World) -> None:
    world.pull.review("Bob")
    told = world.ask()
    assert (told.exit_code, told.findings) == (0, ())
    assert told.judged[0].approved_by == ("@Bob",)
    assert told.request == "pull request 7 of octo/goldens"


def test_a_member_of_the_team_may(world: World) -> None:
    world.pull.review("erin")
    assert world.ask().exit_code == 0


def by_its_author(pull: GitHubPull) -> None:
    pull.author = "bob"
    pull.review("bob")


MISSING: dict[str, tuple[Callable[[GitHubPull], object], str]] = {
    "nobody": (lambda _: None, "no approver has approved"),
    "only a comment": (lambda p: p.review("bob", "COMMENTED"), "no approver has approved"),
    "a draft": (lambda p: p.review("bob", "PENDING"), "no approver has approved"),
    "a ghost": (lambda p: p.review(None), "no approver has approved"),
    "somebody else": (lambda p: p.review("mallory"), "@mallory approved, but may not"),
    "the other rule's approver": (lambda p: p.review("carol"), "@carol approved, but may not"),
    "leak 8: withdrawn": (
        lambda p: (p.review("bob"), p.review("bob", "CHANGES_REQUESTED")),
        "@bob: their latest review requests changes",
    ),
    "leak 8: dismissed": (lambda p: p.review("bob", "DISMISSED"), "@bob: their latest review was dismissed"),
    "dismissed later, after another approval": (
        lambda p: (p.review("bob"), p.review("BOB", "DISMISSED")),
        "@BOB: their latest review was dismissed",
    ),
    "leak 8: of an older commit": (
        lambda p: p.review("bob", commit=OLD),
        f"@bob: their approval is of {OLD[:12]}, not of the head",
    ),
    "of a commit that is gone": (
        lambda p: p.review("bob", commit=None),
        "@bob: their approval is of an unknown commit, not of the head",
    ),
    "approved before, and an older commit again": (
        lambda p: (p.review("bob"), p.review("bob", commit=OLD)),
        "not of the head",
    ),
    "of what the request was before it was pointed at another branch": (
        lambda p: (p.review("bob"), p.retarget()),
        "@bob: they approved before the base branch was changed",
    ),
    "of the same second as that": (
        lambda p: p.retargeted.append(p.review("bob").submitted or 0),
        "@bob: they approved before the base branch was changed",
    ),
    "the author of the request": (by_its_author, "@bob: is the author of the pull request"),
    "the author of a commit": (
        lambda p: (p.commit("c" * 40, "Bob"), p.review("bob")),
        "@bob: wrote commit cccccccccccc",
    ),
    "the committer of a commit": (
        lambda p: (p.commit("c" * 40, "alice", committer="bob"), p.review("bob")),
        "@bob: committed cccccccccccc",
    ),
    "a co-author by the forge's own address": (
        lambda p: (
            p.commit("c" * 40, "alice", message="x\n\nCo-Authored-By: B <7+bob@users.noreply.github.com>"),
            p.review("bob"),
        ),
        "@bob: is a co-author of commit cccccccccccc",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", MISSING)
def test_what_is_no_approval(world: World, what: str) -> None:
    prepare, expected = MISSING[what]
    prepare(world.pull)
    told = world.ask()
    assert told.exit_code == 1
    assert expected in why(told)
    (finding,) = told.findings
    assert (finding.kind, finding.path) == ("approval-missing", FILE)
    assert finding.next == f"gh pr edit 7 --repo {REPO} --add-reviewer bob,octo/numerics"


@pytest.mark.parametrize("state", ["COMMENTED", "PENDING"])
def test_a_comment_takes_no_approval_back(world: World, state: str) -> None:
    world.pull.review("bob")
    world.pull.review("bob", state)
    assert world.ask().exit_code == 0


def test_changes_requested_and_then_approved(world: World) -> None:
    world.pull.review("bob", "CHANGES_REQUESTED")
    world.pull.review("bob")
    assert world.ask().exit_code == 0


@pytest.mark.slow
def test_a_push_after_the_approval_needs_another(world: World) -> None:
    world.pull.review("bob")
    assert world.ask().exit_code == 0
    world.tree.write("README", "more")
    world.push()
    assert world.ask().exit_code == 1
    world.pull.review("bob")
    assert world.ask().exit_code == 0


def test_an_approval_after_the_request_was_pointed_elsewhere(world: World) -> None:
    world.pull.review("carol", "COMMENTED")
    world.pull.retarget()
    world.pull.review("bob")
    assert world.ask().exit_code == 0


def test_bringing_the_branch_up_to_date_makes_nobody_an_author(world: World) -> None:
    world.pull.commit("d" * 40, "bob", parents=2)
    world.pull.review("bob")
    assert world.ask().exit_code == 0


def test_an_author_is_known_by_address_too(world: World) -> None:
    git = world.tree.repository.git
    git("commit", "--quiet", "--allow-empty", "--author=B <Bob@Example.org>", "-m", "mine")
    world.head = world.pull.head = git("rev-parse", "HEAD").strip()
    world.forge.github.emails["bob"] = "bob@example.org"
    world.pull.review("bob")
    assert "wrote commit" in why(world.ask())


def test_each_rule_has_its_approvers(world: World) -> None:
    world.tree.edit(FILE, "0.01", "0.5")
    world.push()
    world.pull.review("bob")
    told = world.ask()
    assert {one.waiver.rule: one.state for one in told.judged} == {"tolerance": "missing", "gradient": "approved"}
    world.pull.review("carol")
    assert world.ask().exit_code == 0


def test_the_hundredth_review_counts_too(world: World) -> None:
    for _ in range(150):
        world.pull.review("mallory", "COMMENTED")
    world.pull.review("bob")
    world.pull.review("bob", "DISMISSED")
    assert "dismissed" in why(world.ask())
    assert world.forge.seen("page=2")


@pytest.mark.slow
def test_an_e_mail_approver_is_known_by_the_address_an_account_shows(tmp_path: Path, forge: Forge) -> None:
    policy = '[policy]\napprovers = {default = ["Bob@example.org", "9+zoe@users.noreply.github.com"]}\n'
    world = World(PolicyRange(tmp_path / "r", policy), forge)
    world.pull.review("bob")
    assert world.ask().exit_code == 1
    forge.github.emails["bob"] = "bob@Example.org"
    assert world.ask().exit_code == 0
    forge.github.emails.clear()
    world.pull.review("zoe")
    assert world.ask().exit_code == 0


@pytest.mark.slow
def test_who_is_in_a_team_may_be_unknown(world: World) -> None:
    world.forge.github.teams.clear()
    world.pull.review("erin")
    told = world.ask()
    assert told.exit_code == 3
    assert told.findings[0].kind == "cannot-read"
    assert "who is in @octo/numerics could not be read (HTTP 404)" in told.findings[0].message
    world.pull.review("bob")  # it does not matter any more
    assert world.ask().exit_code == 0


def test_without_a_reviewer_nobody_asks_about_teams(world: World) -> None:
    world.forge.github.teams.clear()
    assert world.ask().exit_code == 1
    assert not world.forge.seen("/teams/")


TROUBLE: dict[str, Callable[[Forge], None]] = {
    "5xx": lambda f: f.faults.server_error("/reviews", times=None),
    "rate limit": lambda f: f.faults.rate_limit("/pulls/7", reset_in=9999, times=None),
    "forbidden": lambda f: f.faults.forbidden("/reviews"),
    "html": lambda f: f.faults.add(Fault(pattern="/reviews", status=200, body=b"<html>", times=None)),
    "cut": lambda f: f.faults.cut("/reviews", after=5, times=None, host="api"),
    "events": lambda f: f.faults.server_error("/events", times=None),
    "commits": lambda f: f.faults.server_error("/commits", times=None),
    "wrong token": lambda f: setattr(f.github, "tokens", {"another"}),
    "no such request": lambda f: f.github.repository(REPO).pulls.clear(),
}


@pytest.mark.parametrize("what", TROUBLE)
def test_what_cannot_be_had_is_not_a_no_and_not_a_yes(world: World, what: str) -> None:
    world.pull.review("bob")
    token = world.forge.github.token
    env = {"GITHUB_API_URL": world.forge.github_url, "GITHUB_TOKEN": token}
    TROUBLE[what](world.forge)
    with pytest.raises(CannotVerify) as caught:
        world.ask(env=env)
    assert token not in str(caught.value)
    assert caught.value.exit_code == 3


def test_trouble_that_passes_is_waited_for(world: World) -> None:
    world.pull.review("bob")
    world.forge.faults.server_error("/reviews", times=1)
    assert world.ask().exit_code == 0


def test_a_branch_does_not_appoint_its_own_approvers(world: World) -> None:
    world.tree.write("karat.toml", POLICY.replace('"@bob"', '"@mallory"'))
    world.push()
    world.pull.review("mallory")
    told = world.ask()
    assert told.exit_code == 1
    assert {f.kind for f in told.findings} == {"approvers-changed", "approval-missing"}
    assert {one.waiver.rule for one in told.judged} == {"gradient", "policy"}
    assert all("@mallory approved, but may not" in "; ".join(one.missing) for one in told.judged)


def test_whoever_main_has_dismissed_since_may_not_approve(world: World) -> None:
    git = world.tree.repository.git
    git("checkout", "--quiet", "main")
    world.tree.write("karat.toml", POLICY.replace('"@bob", ', ""))
    world.tree.repository.commit("bob has left")
    git("checkout", "--quiet", "topic")
    world.pull.review("bob")
    assert "@bob approved, but may not" in why(world.ask())


@pytest.mark.slow
def test_code_owners_of_the_base_decide(tmp_path: Path, forge: Forge) -> None:
    policy = '[policy]\napprovers = {default = ["CODEOWNERS"]}\n'
    owners = "* @zoe\n/tests/ @bob\n"
    tree = PolicyRange(tmp_path / "r", policy, **{".github/CODEOWNERS": owners})
    world = World(tree, forge)
    world.pull.review("zoe")
    assert world.ask().exit_code == 1
    world.pull.review("bob")
    assert world.ask().exit_code == 0
    tree.write(".github/CODEOWNERS", "* @mallory\n")
    world.push()
    world.pull.review("mallory")
    told = world.ask()
    assert told.exit_code == 1
    assert {one.waiver.about for one in told.judged} == {"skip_check_grad_ci", "CODEOWNERS"}


def test_code_owners_that_name_nobody(tmp_path: Path, forge: Forge) -> None:
    policy = '[policy]\napprovers = {default = ["CODEOWNERS"]}\n'
    world = World(PolicyRange(tmp_path / "r", policy, CODEOWNERS="/docs/ @bob\n"), forge)
    world.pull.review("bob")
    assert "CODEOWNERS has no owner for tests/test_ops.py" in why(world.ask())
