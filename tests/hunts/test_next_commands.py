from __future__ import annotations

import shlex

from hypothesis import given, strategies as st

from karat.cli.hunt.journal import show
from karat.hunts.journal import resume_command, show_command

TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=12)


@given(
    point=TEXTS, stage=st.sampled_from(["", "0", "0.2/1"]), journal=st.sampled_from(["", "a b.hunt"]), log=st.booleans()
)
def test_any_point_can_be_shown_by_what_is_pasted(point: str, stage: str, journal: str, *, log: bool) -> None:
    made = show_command(point, stage=stage, journal=journal, log=log)
    words = list(made.words)
    assert words[:3] == ["karat", "hunt", "show"]
    # What cannot be printed is written for bash, which shlex does not read.
    assert shlex.split(made) == words or not point.isprintable()
    said = show.make_context("show", words[3:]).params
    assert (said["point"], said["stage"] or "", said["journal_file"] or "", said["log"]) == (point, stage, journal, log)


def test_a_spent_budget_is_raised() -> None:
    assert resume_command("a b.hunt") == "karat hunt resume 'a b.hunt'"
    assert resume_command("x.hunt", ("--max-runs", "40")) == "karat hunt resume x.hunt --max-runs 40"
