"""One comment that is kept up to date, on the forge's GitHub and GitLab."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from factories.forge import Forge
from factories.forge_github import GitHubIssueComment, GitHubRepository
from karat.findings import CannotVerify
from karat.net.client import Refused
from karat.net.comments import ACTIONS_BOT, comment, fitting, marker

REPO = "octo/models"


@pytest.fixture
def forge() -> Iterator[Forge]:
    with Forge() as made:
        made.github.pull(REPO, 7, author="alice", head="1" * 40)
        yield made


def env(forge: Forge) -> dict[str, str]:
    return {"GITHUB_API_URL": forge.github_url, "GITHUB_TOKEN": forge.github.token}


def repository(forge: Forge) -> GitHubRepository:
    return forge.github.repository(REPO)


def said(forge: Forge, text: str, **more: str) -> str:
    return comment("github", REPO, 7, text, **{"name": "karat", "env": env(forge), **more}).action  # type: ignore[arg-type]


def test_there_is_one_comment_and_it_is_kept_up_to_date(forge: Forge) -> None:
    assert [said(forge, text) for text in ("one", "one", "two")] == ["created", "unchanged", "updated"]
    (found,) = repository(forge).comments
    assert (found.login, found.body) == (ACTIONS_BOT, "<!-- karat comment: karat -->\ntwo")
    assert said(forge, "three", name="nightly") == "created"
    assert len(repository(forge).comments) == 2


def test_the_comment_of_somebody_else_is_never_touched(forge: Forge) -> None:
    theirs = f"{marker('karat')}\nI copied this"
    repository(forge).comments += [
        GitHubIssueComment(id=n, number=7, login="mallory", body=theirs) for n in range(1, 131)
    ]
    assert said(forge, "ours") == "created"
    assert said(forge, "ours again") == "updated"
    assert [one.body for one in repository(forge).comments[:130]] == [theirs] * 130
    assert repository(forge).comments[130].body.endswith("ours again")


def test_a_person_replaces_their_own(forge: Forge) -> None:
    forge.github.account = "alice"
    assert said(forge, "one") == "created"
    forge.github.account = "bob"
    assert said(forge, "two") == "created"
    assert said(forge, "three", author="alice") == "updated"
    assert [(one.login, one.body[-5:]) for one in repository(forge).comments] == [("alice", "three"), ("bob", ">\ntwo")]


def test_what_is_too_long_is_cut_at_a_paragraph_and_closed(forge: Forge) -> None:
    text = "<details>\n\n```\n" + "".join(f"{n} {'word ' * 30}\n\n" for n in range(2000))
    assert said(forge, text) == "created"
    body = repository(forge).comments[0].body
    assert len(body) <= 65_536
    assert body.endswith("\n```\n\n</details>\n\n> Cut here to fit 65,536 characters.\n")
    assert fitting("short", 100) == "short"


def test_a_token_that_may_only_read_is_refused_and_never_told(forge: Forge) -> None:
    forge.github.reads_only = True
    with pytest.raises(Refused, match=r"may write to .*/issues/7/comments, found HTTP 403") as refused:
        said(forge, "one")
    assert refused.value.status == 403
    assert forge.github.token not in str(refused.value)
    with pytest.raises(Refused, match="found none in the environment") as none:
        comment("github", REPO, 7, "one", name="karat", env={"GITHUB_API_URL": forge.github_url, "PATH": ""})
    assert none.value.status == 403


def test_a_comment_is_sent_once_even_if_the_answer_is_lost(forge: Forge) -> None:
    forge.faults.cut(r"/comments$", after=10, host=None)
    with pytest.raises(CannotVerify, match="expected an answer from"):
        said(forge, "one")
    assert len(repository(forge).comments) == 1


def test_a_request_that_is_not_there(forge: Forge) -> None:
    with pytest.raises(CannotVerify, match="there is no pull request 8 of octo/models"):
        comment("github", REPO, 8, "one", name="karat", env=env(forge))


def test_on_gitlab_it_is_a_note(forge: Forge) -> None:
    made = forge.gitlab.merge_request("group/models", 3, author="alice", head="1" * 40)
    here = {"CI_API_V4_URL": forge.gitlab_url, "GITLAB_TOKEN": forge.gitlab.token}
    actions = [
        comment("gitlab", "group/models", 3, text, name="karat", env=here).action for text in ("one", "one", "two")
    ]
    assert actions == ["created", "unchanged", "updated"]
    assert list(made.comments.values()) == [("project_1_bot", "<!-- karat comment: karat -->\ntwo")]
