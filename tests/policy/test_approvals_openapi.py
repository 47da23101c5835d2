"""The forge's pull requests against GitHub's own OpenAPI description, and what karat asks of them."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from conftest import missing
from factories.forge import Forge
from factories.forge_github import GitHubPull
from factories.openapi import Description, Unavailable, fetch
from karat.policy.approvals.forges import GitHubReviews
from karat.policy.approvals.request import Options
from karat.system.command import Command

REPO = "octo/goldens"
CACHE = Path(__file__).parents[2] / "build" / "openapi"


@pytest.fixture(scope="session")
def description() -> Description:
    try:
        return Description(fetch(CACHE))
    except Unavailable as reason:
        missing(str(reason))


@pytest.fixture
def pull(forge: Forge) -> GitHubPull:
    """A pull request with reviews and commits in every state that karat looks at."""
    pull = forge.github.pull(REPO, 7, author="alice", head="a" * 40, merge="b" * 40)
    for state in ("APPROVED", "CHANGES_REQUESTED", "COMMENTED", "DISMISSED", "PENDING"):
        pull.review("bob", state)
    pull.review(None)
    pull.review("carol", commit=None)
    pull.retarget()
    pull.commit("a" * 40, "alice", message="x\n\nCo-authored-by: D <dave@example.invalid>")
    pull.commit("c" * 40, None, committer=None, parents=2)
    forge.github.teams["octo/numerics"] = ["bob", "carol"]
    forge.github.emails["bob"] = "bob@example.invalid"
    return pull


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        f"/repos/{REPO}/pulls/7",
        f"/repos/{REPO}/pulls/7/reviews",
        f"/repos/{REPO}/pulls/7/reviews?per_page=2&page=2",
        f"/repos/{REPO}/pulls/7/commits?per_page=100",
        f"/repos/{REPO}/issues/7/events",
        "/orgs/octo/teams/numerics/members?per_page=1",
        "/users/bob",
        "/users/carol",
    ],
)
@pytest.mark.usefixtures("pull")
def test_every_answer_is_as_described(description: Description, forge: Forge, place: str) -> None:
    headers = {"Authorization": f"Bearer {forge.github.token}"}
    answer = httpx.get(f"{forge.github_url}{place}", headers=headers)
    path, query = answer.url.path, dict(answer.url.params)
    assert answer.status_code == 200
    assert description.faults_of_request(path, query) == []
    assert description.faults_of_answer(path, 200, answer.json()) == []


@pytest.mark.slow
def test_karat_asks_for_nothing_that_is_not_described(description: Description, forge: Forge, pull: GitHubPull) -> None:
    for _ in range(130):
        pull.review("bob")
    env = {"GITHUB_API_URL": forge.github_url, "GITHUB_TOKEN": forge.github.token}
    asked = GitHubReviews(REPO, 7, Options(base="main", env=env, again=Command("again")))
    try:
        request = asked.request()
        assert asked.members("@octo/numerics") == {"bob", "carol"}
        assert asked.email_of("bob") == "bob@example.invalid"
    finally:
        asked.close()
    assert len(request.reviews) == 3 + 1 + 130  # neither comments, nor drafts, nor those of nobody
    requests = forge.seen(host="api")
    assert any("page=2" in one.target for one in requests)
    for one in requests:
        assert description.faults_of_request(one.path, one.query) == [], one.target
