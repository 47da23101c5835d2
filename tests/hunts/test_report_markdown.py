from __future__ import annotations

import re

import msgspec
import pytest

from factories.hunt_reports import nightly, nothing
from karat.hunts.model import HuntReport
from karat.hunts.report.markdown import render


def with_suspect(**fields: str) -> HuntReport:
    """The nightly report with another culprit commit."""
    report = nightly()
    last = report.culprits[-1]
    suspect = msgspec.structs.replace(last.suspects[0], **fields)
    changed = msgspec.structs.replace(last, suspects=(suspect,))
    return msgspec.structs.replace(report, culprits=(*report.culprits[:-1], changed))


def test_the_issue_says_what_since_when_how_much_who_and_how_to_see_it() -> None:
    text = render(nightly())
    assert text.startswith("# mlups: 1 regression, 1 dip\n")
    assert text.index("Not looked for everywhere: a dip of one night could hide") < text.index("## Dip")
    part = text[text.index("## Regression") :]
    for fact in (
        "last good `xla@bbbbbbbb`, first bad `xla@cccccccc`",
        "577.3 → 536.7 MLUPS/s (−7.0%)",
        f"[`cccccccccccc`](https://github.com/openxla/xla/commit/{'c' * 40})",
        "A. N. Author",
        "confirmed by running both sides again",
        "old jax with new xla: 536.7 (bad)",
        "| `image.digest` | `sha256:xla@bbbbbbbb` | `sha256:xla@cccccccc` |",
        "```sh\nkarat hunt show 'xla@cccccccc' --stage 0.2/1\n```",
        "**crash** `ImportError: cannot import name '<b>x</b>' from \"jax\"`: `2023-08-09`",
    ):
        assert fact in part


def test_nobody_is_called_and_nothing_becomes_markup() -> None:
    text = render(nightly())
    outside = re.sub(r"`[^`\n]+`|```.*?```", "", text, flags=re.DOTALL)
    assert "<img" not in re.sub(r"\\.", "", outside)
    assert not re.search(r"@\w", outside)


@pytest.mark.parametrize("link", ["javascript:alert(1)", "https://x/a b", "https://x/)[y](z", "ftp://x/y"])
def test_only_plain_links_are_links(link: str) -> None:
    text = render(with_suspect(link=link))
    assert "](" not in text


@pytest.mark.parametrize("title", ["```", "a\n\n# b", "</details>", "| x | y |", "[x](https://evil.example)"])
def test_a_title_cannot_leave_its_line(title: str) -> None:
    text = render(with_suspect(title=title))
    line = next(line for line in text.splitlines() if line.startswith("- xla "))
    assert "A. N. Author" in line
    assert "https://evil.example" not in text


def test_a_log_cannot_end_its_block() -> None:
    report = nightly()
    first = report.stages[0]
    points = tuple(
        msgspec.structs.replace(p, log="```\n</details>\n# loud\n````\n") if p.log else p for p in first.points
    )
    stages = (msgspec.structs.replace(first, points=points), *report.stages[1:])
    text = render(msgspec.structs.replace(report, stages=stages))
    assert "\n  `````text\n  ```\n  </details>\n  # loud\n  ````\n  `````\n" in text


def test_a_quiet_hunt_says_what_was_tried() -> None:
    text = render(nothing())
    assert "no change found so far (the hunt is stopped)" in text
    assert "3 of 3 points tried" in text


def test_why_points_cannot_be_had_is_said() -> None:
    assert "## Not available\n\n- containers by day: `2023-08-07`: the registry has no such tag\n" in render(nightly())


def test_which_end_of_a_dip_it_is_and_how_flaky_the_runs_are_is_said() -> None:
    text = render(nightly())
    assert text.index("## Dip (there): ") < text.index("## Dip (and back): ")
    assert "flaky: about 10% of the runs fail" in text
