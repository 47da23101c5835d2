"""Tokens: where they come from, and that they are not seen."""

from __future__ import annotations

import base64
import copy
from pathlib import Path
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given, strategies as st

from karat.findings import UsageError
from karat.net.client import Token
from karat.net.forges import github_token, gitlab_token
from karat.system.secrets import Secret, scrub

TOKENS = st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=12).filter(
    lambda text: "*" not in text
)


def test_a_secret_shows_itself_as_stars() -> None:
    secret = Secret("ghp_planted")
    token = Token(secret=secret, header="Authorization", found_in="GITHUB_TOKEN")
    shown = [str(secret), repr(secret), f"{secret}", f"{secret:>10}", f"{secret!r}", str([secret])]
    assert not any("planted" in text for text in [*shown, repr(token), str(token)])
    assert secret.reveal() == "ghp_planted"


def test_a_secret_is_neither_copied_nor_encoded() -> None:
    with pytest.raises(TypeError):
        copy.copy(Secret("x"))
    with pytest.raises(TypeError):
        msgspec.json.encode(Secret("x"))


@pytest.mark.parametrize(
    ("env", "found_in", "value"),
    [
        ({"GITHUB_TOKEN": "a", "GH_TOKEN": "b"}, "GITHUB_TOKEN", "Bearer a"),
        ({"GITHUB_TOKEN": " ", "GH_TOKEN": "b\n"}, "GH_TOKEN", "Bearer b"),
    ],
)
def test_github_tokens_by_variable(env: dict[str, str], found_in: str, value: str) -> None:
    token = github_token(env)
    assert token is not None
    assert (token.found_in, token.header, token.value()) == (found_in, "Authorization", value)


@pytest.mark.parametrize(
    ("env", "found_in", "header"),
    [
        ({"GITLAB_TOKEN": "a", "CI_JOB_TOKEN": "c"}, "GITLAB_TOKEN", "PRIVATE-TOKEN"),
        ({"RO_API_TOKEN": "a", "CI_JOB_TOKEN": "c"}, "RO_API_TOKEN", "PRIVATE-TOKEN"),
        ({"CI_JOB_TOKEN": "c"}, "CI_JOB_TOKEN", "JOB-TOKEN"),
    ],
)
def test_gitlab_tokens_by_variable(env: dict[str, str], found_in: str, header: str) -> None:
    token = gitlab_token(env)
    assert token is not None
    assert (token.found_in, token.header) == (found_in, header)


def test_no_token_is_no_error() -> None:
    assert github_token({}) is None
    assert gitlab_token({}) is None


@pytest.mark.parametrize("text", ["two words", "a\r\nX-Evil: 1", "schlüssel"])
def test_a_token_that_would_break_the_header_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        github_token({"GITHUB_TOKEN": text})
    assert "GITHUB_TOKEN" in str(caught.value)
    assert text not in str(caught.value)


def fake_gh(folder: Path, script: str) -> dict[str, str]:
    program = folder / "gh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_gh_is_asked_for_the_token_of_that_host(tmp_path: Path) -> None:
    env = fake_gh(tmp_path, 'echo "$@" > "$0.words"; [ "$4" = github.com ] && echo gho_from_gh')
    token = github_token(env)
    assert token is not None
    assert (token.found_in, token.value()) == ("gh auth token", "Bearer gho_from_gh")
    assert (tmp_path / "gh.words").read_text() == "auth token --hostname github.com\n"
    # The token of github.com does not go to whatever host GITHUB_API_URL names.
    assert github_token(env, "ghe.example.com") is None


@pytest.mark.parametrize("script", ["exit 1", "echo no token >&2; exit 4", "true"])
def test_gh_without_a_token(tmp_path: Path, script: str) -> None:
    assert github_token(fake_gh(tmp_path, script)) is None


def test_the_environment_wins_over_gh(tmp_path: Path) -> None:
    env = {**fake_gh(tmp_path, "echo gho_from_gh"), "GH_TOKEN": "mine"}
    token = github_token(env)
    assert token is not None
    assert token.value() == "Bearer mine"


@pytest.mark.slow
@given(st.text(), TOKENS, st.text())
def test_scrubbed_text_holds_no_secret(before: str, value: str, after: str) -> None:
    text = f"{before}{value} {quote(value, safe='')} {quote_plus(value)}{after}"
    scrubbed = scrub(text, [Secret(value)])
    assert value not in scrubbed
    assert quote(value, safe="") not in scrubbed


@pytest.mark.slow
@given(st.binary(max_size=10), TOKENS, st.binary(max_size=10))
def test_base64_of_anything_around_a_secret_is_scrubbed(before: bytes, value: str, after: bytes) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(before + value.encode() + after).decode()
        assert "***" in scrub(f"Basic {text}", [Secret(value)])


@pytest.mark.slow
@given(st.text())
def test_scrubbing_nothing_changes_nothing(text: str) -> None:
    assert scrub(text, []) == text
    assert scrub(text, [Secret("")]) == text
