from __future__ import annotations

import string

import pytest
from hypothesis import given, strategies as st

from karat.system.ci import commit_of, facts, image_of, in_ci, provider_of, run_of, session_of

GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_RUN_ID": "123",
    "GITHUB_RUN_ATTEMPT": "2",
    "GITHUB_JOB": "nightly",
    "GITHUB_REPOSITORY": "org/project",
    "GITHUB_SHA": "ab" * 20,
    "GITHUB_TOKEN": "ghs_PlantedInTheEnvironment",
    "ImageOS": "ubuntu24",
    "ImageVersion": "20260101.1",
}
GITLAB = {
    "GITLAB_CI": "true",
    "CI_PIPELINE_ID": "9",
    "CI_JOB_NAME": "models 1/2",
    "CI_JOB_URL": "https://user:secret@gitlab.example:8443/p/-/jobs/1?token=secret#log",
    "CI_COMMIT_SHA": "cd" * 20,
    "CI_JOB_IMAGE": "registry/torch:2.13",
}


@pytest.mark.parametrize("word", ["", "0", "false", "False", "no"])
def test_ci_may_be_set_to_no(word: str) -> None:
    assert not in_ci({"CI": word})


def test_ci_is_on_otherwise() -> None:
    assert in_ci({"CI": "true"})
    assert in_ci({"CI": "1"})
    assert not in_ci({})


def test_github_is_told_by_run_attempt_and_job() -> None:
    assert run_of(GITHUB) == {
        "provider": "github",
        "run": "123",
        "attempt": "2",
        "job": "nightly",
        "url": "https://github.com/org/project/actions/runs/123",
    }
    assert session_of(GITHUB) == "github-123-2"
    assert commit_of(GITHUB) == "ab" * 20
    assert image_of(GITHUB) == "ubuntu24 20260101.1"


def test_shards_of_one_pipeline_share_a_session_and_no_secret_of_an_address_is_kept() -> None:
    assert session_of(GITLAB) == session_of(GITLAB | {"CI_JOB_NAME": "models 2/2"}) == "gitlab-9"
    assert run_of(GITLAB)["url"] == "https://gitlab.example:8443/p/-/jobs/1"
    assert image_of(GITLAB) == "registry/torch:2.13"


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("http://me:secret@[::1]:80/job?token=x#y", "http://[::1]:80/job"),
        ("https://ci.example/job", "https://ci.example/job"),
        ("http://ci:odd/job", "http://ci:odd/job"),
        ("http://[odd", None),
        ("job 7", None),
    ],
)
def test_an_address_is_kept_without_secrets_or_not_at_all(told: str, kept: str | None) -> None:
    jenkins = {"JENKINS_URL": "x", "BUILD_TAG": "b-1", "BUILD_URL": told}
    assert run_of(jenkins).get("url") == kept


def test_another_attempt_is_another_session() -> None:
    assert session_of(GITHUB | {"GITHUB_RUN_ATTEMPT": "3"}) != session_of(GITHUB)


def test_outside_of_ci_nothing_is_told() -> None:
    assert run_of({}) == {}
    assert session_of({}) is None
    assert commit_of({}) is None
    assert image_of({}) is None
    assert image_of({"KARAT_IMAGE": "torch:nightly"}) == "torch:nightly"


@given(st.text(min_size=1))
def test_a_session_is_always_a_name_for_a_folder(run: str) -> None:
    name = session_of({"BUILDKITE": "true", "BUILDKITE_BUILD_ID": run})
    assert name is not None
    assert set(name) <= set(string.ascii_letters + string.digits + "._-")
    assert len(name) <= 100


def test_a_container_that_was_handed_the_run_alone_is_in_that_run() -> None:
    assert facts({"GITHUB_RUN_ID": "17", "GITHUB_REPOSITORY": "o/n", "GITHUB_TOKEN": "secret"}) == {
        "provider": "github",
        "repository": "o/n",
        "run": "17",
        "url": "https://github.com/o/n/actions/runs/17",
    }
    # Anybody may set variables of such names.
    assert facts({"GIT_COMMIT": "abc", "BUILD_TAG": "x"}) == {}


@pytest.mark.parametrize("word", ["", "false", "0"])
def test_a_system_that_says_no_is_not_there(word: str) -> None:
    assert provider_of({"GITHUB_ACTIONS": word}) is None
    assert provider_of({"GITHUB_ACTIONS": word, "GITLAB_CI": "true"}) == "gitlab"
