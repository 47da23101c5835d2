from __future__ import annotations

import base64
import json
import re
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, strategies as st

from karat.system.secrets import CLOUD, EVERYTHING, PACKAGE_INDEX, Secret, scrub, secrets_in, withhold

# fmt: off
SECRET = [
    "GITHUB_TOKEN", "GH_TOKEN", "GITLAB_TOKEN", "CI_JOB_TOKEN", "CI_JOB_JWT_V2", "ACTIONS_RUNTIME_TOKEN", "HF_TOKEN",
    "CI_REGISTRY_PASSWORD", "DOCKER_AUTH_CONFIG", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_SECRET", "AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING",
    "TWINE_PASSWORD", "UV_INDEX_OURS_PASSWORD", "POETRY_PYPI_TOKEN_PYPI", "WANDB_API_KEY", "OPENAI_API_KEY", "db_password",
    "NPM_CONFIG__AUTH", "DB_PWD", "GIT_ASKPASS", "SSH_ASKPASS", "RAY_AUTH_TOKEN", "SIGNING_KEY", "SMTP_PASS", "GH_PAT", "PGPASSWORD", "MYSQL_PWD",
]
NEEDED = [
    "PATH", "HOME", "PWD", "OLDPWD", "USER", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "VIRTUAL_ENV",
    "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "NVIDIA_VISIBLE_DEVICES", "XLA_FLAGS", "JAX_PLATFORMS", "OMP_NUM_THREADS",
    "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONFIG", "KARAT_OUT", "KARAT_JOB", "KARAT_AREAS", "CI",
    "TOKENIZERS_PARALLELISM", "GITHUB_ACTIONS", "GIT_CONFIG_GLOBAL", "KEYBOARD", "PASSAGE", "HTTPS_PROXY", "no_proxy",
]
# fmt: on


@pytest.mark.parametrize("name", SECRET)
def test_what_is_withheld(name: str) -> None:
    assert withhold({name: "value", "PATH": "/bin"}) == {"PATH": "/bin"}
    assert withhold({name: "value"}, passed=(name,)) == {name: "value"}
    assert withhold({name: "value"}, passed=EVERYTHING) == {name: "value"}


@pytest.mark.parametrize("name", NEEDED)
def test_what_must_go_on_working(name: str) -> None:
    assert withhold({name: "value"}) == {name: "value"}


@pytest.mark.parametrize(
    ("value", "goes"),
    [
        ("https://me:hunter22@index.example/simple", True),
        ("https://glpat-123@gitlab.example/r.git", True),
        ("postgres://me:hunter22@db/x", True),
        ("AUTHORIZATION: basic abc", True),
        ("https://index.example/simple", False),
        ("ssh://git@github.com/o/r.git", False),
        ("a@b.example", False),
    ],
)
def test_a_login_in_a_value_is_withheld_whatever_its_name(value: str, *, goes: bool) -> None:
    assert ("PLACE" not in withhold({"PLACE": value})) is goes


def test_a_proxy_stays_and_its_password_is_scrubbed() -> None:
    environment = {"https_proxy": "http://me:hunter2222@proxy:3128"}
    assert withhold(environment) == environment
    assert scrub("via hunter2222", secrets_in(environment)) == "via ***"


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ("https://ghp0123456789:x-oauth-basic@github.example/r.git", "ghp0123456789"),
        ("https://ghp0123456789:@github.example/r.git", "ghp0123456789"),
        ("https://ghp0123456789@github.example/r.git", "ghp0123456789"),
        ("postgres://me:p%40ss%2Fword1@db/x", "p@ss/word1"),
        ("postgres://me:p%40ss%2Fword1@db/x", "p%40ss%2Fword1"),
        ("AUTHORIZATION: basic eDpoZWxsb2hlbGxv", "eDpoZWxsb2hlbGxv"),
    ],
)
def test_a_login_in_a_value_is_not_written_either(value: str, printed: str) -> None:
    assert scrub(f"<{printed}>", secrets_in({"PLACE": value})) == "<***>"


def test_blanks_around_a_secret_do_not_hide_it() -> None:
    assert scrub("x=0123456789ab", secrets_in({"A_TOKEN": " 0123456789ab\n"})) == "x=***"


def test_gits_numbered_settings_go_together() -> None:
    environment = {
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        "GIT_CONFIG_KEY_1": "http.extraheader",
        "GIT_CONFIG_VALUE_1": "AUTHORIZATION: basic eDpoZWxsbw==",
    }
    assert withhold(environment) == {}
    plain = {**environment, "GIT_CONFIG_VALUE_1": "X-Trace: 1"}
    assert withhold(plain) == plain


def test_named_ones_and_globs() -> None:
    environment = {"REGISTRY": "x", "AWS_SECRET_ACCESS_KEY": "a", "UV_INDEX_X_PASSWORD": "b"}
    assert set(withhold(environment, CLOUD, {"REGISTRY"})) == {"AWS_SECRET_ACCESS_KEY"}
    assert set(withhold(environment, PACKAGE_INDEX)) == {"REGISTRY", "UV_INDEX_X_PASSWORD"}


def test_what_would_hide_innocent_words_is_not_looked_for() -> None:
    assert secrets_in({"A_TOKEN": "false", "MAX_TOKENS": "1000000000", "MODE": "production"}) == ()


def test_a_key_of_several_lines_is_found_line_by_line() -> None:
    key = "-----BEGIN KEY-----\nc29tZXRoaW5nIGxvbmc\n-----END KEY-----"
    assert scrub("x c29tZXRoaW5nIGxvbmc y", secrets_in({"DEPLOY_KEY": key})) == "x *** y"


def test_of_a_secret_that_begins_like_another_nothing_is_left() -> None:
    assert scrub("abcdefghij-k", secrets_in({"A_TOKEN": "abcdefghij", "B_TOKEN": "abcdefghij-k"})) == "***"


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=12).filter(lambda t: "*" not in t))
def test_no_form_of_a_secret_is_left_in_texts_or_bytes(value: str) -> None:
    forms = [
        value,
        quote(value, safe=""),
        json.dumps(value)[1:-1],
        quote_plus(value),
        base64.b64encode(value.encode()).decode().rstrip("="),
        *(base64.urlsafe_b64encode(f"{user}:{value}".encode()).decode().rstrip("=") for user in ("", "a", "ab")),
    ]
    for form in forms:
        text = scrub(f"<{form}>", [Secret(value)])
        assert value not in text
        assert re.fullmatch(r"<.{0,4}\*\*\*.{0,4}>", text, re.DOTALL), "what base64 mixes with its neighbours may stay"
        assert b"***" in scrub(f"<{form}>".encode(), [Secret(value)])
