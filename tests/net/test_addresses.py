"""Addresses: API roots, and URLs that may be shown."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from karat.findings import UsageError
from karat.net.forges import github_host, github_root, gitlab_root
from karat.net.transport import is_loopback, shown


@pytest.mark.parametrize(
    ("env", "root"),
    [
        ({}, "https://gitlab.com/api/v4"),
        ({"CI_API_V4_URL": "https://g.example/api/v4/"}, "https://g.example/api/v4"),
        ({"GITLAB_ENDPOINT": "g.example"}, "https://g.example/api/v4"),
        ({"GITLAB_ENDPOINT": "g.example:8443/sub"}, "https://g.example:8443/sub/api/v4"),
        ({"GITLAB_ENDPOINT": "http://127.0.0.1:8080"}, "http://127.0.0.1:8080/api/v4"),
        ({"GITLAB_ENDPOINT": "https://g.example/api/v4"}, "https://g.example/api/v4"),
        ({"CI_API_V4_URL": "https://a/api/v4", "GITLAB_ENDPOINT": "b"}, "https://a/api/v4"),
    ],
)
def test_gitlab_roots(env: dict[str, str], root: str) -> None:
    assert gitlab_root(env) == root


def test_github_roots() -> None:
    assert github_root({}) == "https://api.github.com"
    assert github_host("https://api.github.com") == "github.com"
    root = github_root({"GITHUB_API_URL": "https://ghe.example.com/api/v3/"})
    assert (root, github_host(root)) == ("https://ghe.example.com/api/v3", "ghe.example.com")


@pytest.mark.parametrize(
    "text",
    [
        "ftp://x",
        "nonsense",
        "https://user:hunter2@host",
        "https://h/?hunter2",
        "http://[::",
        "http://xn--/",
        "http://a..b/",
        "http://☃.example/",
        "http://a b/",
        "http:///x",
    ],
)
def test_a_root_that_is_none_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        github_root({"GITHUB_API_URL": text})
    assert "GITHUB_API_URL" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("127.evil.example", False),
        ("localhost.evil.example", False),
        ("10.0.0.1", False),
    ],
)
def test_loopback(host: str, here: bool) -> None:  # noqa: FBT001 - a parameter of the table
    assert is_loopback(host) is here


@pytest.mark.slow
@given(st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=8))
def test_neither_query_nor_user_is_shown(secret: str) -> None:
    text = shown(f"https://u{secret}x:p{secret}x@host:1/path?sig={secret}#{secret}")
    assert text == "https://host:1/path"
