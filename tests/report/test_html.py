"""The frame of every page: its colours, and what text of strangers can do to it."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest

import karat
from karat.report.html import asset, page


def test_a_page_may_run_its_own_script_and_no_other() -> None:
    made = page(title="t", body="<p>", style="", script="let x = 'é'")
    block = made.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()
    assert f"; script-src 'sha256-{digest}'; " in made
    assert "let x = 'é'" in block
    assert "connect-src" not in made
    assert "connect-src 'self'" in page(title="t", body="<p>", connects=True)


def test_what_looks_like_a_slot_is_not_filled() -> None:
    made = page(title="<!--karat:body-->", body="/*karat:css*/", style="")
    assert "&lt;!--karat:body--&gt;" in made
    assert "/*karat:css*/" in made


def _theme(css: str, opening: str) -> dict[str, str]:
    block = css.split(opening, 1)[1].split("}", 1)[0]
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("opening", [":root {", ':root[data-theme="dark"] {'])
def test_every_text_colour_can_be_read(opening: str) -> None:
    theme = _theme(asset("karat.report", "page.css"), opening)
    grounds = ("bg", "panel", "hover", "info-bg")
    pairs = [(ink, bg) for ink in ("ink", "dim", "accent", "fail", "old", "new", "good") for bg in grounds]
    pairs += [("fail", "fail-bg"), ("warn", "warn-bg"), ("info", "info-bg"), ("warn", "bg"), ("good", "good-bg")]
    for ink, ground in pairs:
        light, dark = sorted((_luminance(theme[ink]), _luminance(theme[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)


def test_both_ways_to_dark_have_the_same_colours() -> None:
    css = asset("karat.report", "page.css")
    assert _theme(css, ':root[data-theme="dark"] {') == _theme(css, ':root:not([data-theme="light"]) {')


def test_every_page_forbids_forms_and_another_base() -> None:
    """The one frame of all pages: nothing is loaded, no form is sent, no link leads elsewhere by a base."""
    for script in ("", "let x = 1"):
        policy = page(title="t", body="<p>b</p>", style="", script=script).partition("Content-Security-Policy")[2]
        said = policy.partition('content="')[2].partition('"')[0]
        assert {"default-src 'none'", "base-uri 'none'", "form-action 'none'"} <= {*said.split("; ")}
    package = Path(karat.__file__).parent
    sources = [path for path in package.rglob("*") if path.suffix in {".py", ".html", ".js"}]
    frames = [path.name for path in sources if re.search(r"<head>|<meta ", path.read_text(encoding="utf-8"))]
    assert frames == ["page.html"]
