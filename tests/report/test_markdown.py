from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st
from markdown_it import MarkdownIt

from karat.report.markdown import prose

RENDER = MarkdownIt("commonmark").enable(["strikethrough", "table"])
# What GitHub looks for in the rendered text.
LIVELY = re.compile(
    r"(?<![\w`])@\w|(?<!&)#\d|\bGH-\d|\bwww\.|https?://|ftp://|[\w.+-]+@[\w-]+\.|<(a|s|del|img|em|strong|code|h\d)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize(
    "text",
    [
        "@octocat", "&commat;octocat", "&#64;octocat", "&#x40;octocat", "#1", "&num;1", "&#35;1", "fixes #1",
        "closes GH-1", "resolves gh-1", "octo/repo#1", "Fixes: https://example.invalid/1", "www.example.invalid",
        "WWW.example.invalid", "~~gone~~", "~gone~", "a@example.invalid", "<img src=x>", "[a](b)", "$x$", "&lt;b&gt;",
    ],
)  # fmt: skip
def test_nothing_comes_alive(text: str) -> None:
    html = RENDER.render(f"| a |\n|---|\n| said {prose(text)} so |\n")
    assert not LIVELY.search(html), html


@given(st.text("@#~&;:/$w.GHgh-1 acomtnuxfes<>*_`|[]()\\", max_size=20))
def test_and_reads_as_it_was_written(text: str) -> None:
    tokens = RENDER.parseInline(f"said {prose(text)} so")[0].children or []
    assert not LIVELY.search(RENDER.renderInline(f"said {prose(text)} so"))
    shown = "".join(token.content for token in tokens).replace("\u200b", "")
    assert shown == f"said {text} so"


@pytest.mark.parametrize("text", ["$5", "a $x$ b"])
def test_dollars_are_no_mathematics(text: str) -> None:
    assert prose(text) == text.replace("$", "\\$")
