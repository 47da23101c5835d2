"""Whole hunts over real repositories: from hours to commits, whose change it is, merges, and what does not show again."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from factories.hunts import BEGAN, commit_at, commits_hunt, dated_commits, found, hunted, hunting
from factories.repositories import Repository
from karat.findings import exit_code
from karat.hunts.report import sentences as say
from karat.hunts.report.assemble import build_report, findings_of

HOURS = """
[checkouts]
start = 2023-08-24T00:00:00Z
end = 2023-08-24T02:30:00Z
"""
BOTH = "echo speed: $(( $(cat a/speed) + $(cat b/speed) ))"


def two(tmp_path: Path) -> tuple[dict[str, Repository], list[str], list[str]]:
    """Two repositories of one commit every ten minutes; `a` is slower from its 4th on, `b` from its 10th."""
    a, b = Repository(tmp_path / "erste Quelle"), Repository(tmp_path / "b")
    first = dated_commits(a, [100] * 3 + [90] * 13)
    second = dated_commits(b, [100] * 9 + [80] * 7)
    return {"a": a, "b": b}, first, second


@pytest.mark.slow
def test_from_hours_to_commits_both_repositories_and_both_commits_are_named(tmp_path: Path) -> None:
    """Stopped on the way, at the first stage and between stages, it goes on to the answer."""
    repositories, first, second = two(tmp_path)
    stages = ["checkouts by hour", "commits"]
    file = commits_hunt(tmp_path / "hunt", repositories, BOTH, HOURS, stages)
    keys: list[list[str]] = []
    for budget in (9, 26, 0):
        with hunting(file, max_runs=budget) as journal:
            report = build_report(journal)
            entries = [(e.stage, e.point, e.number) for e in journal.attempts()]
        assert len(set(entries)) == len(entries)
        keys.append([stage.key for stage in report.stages])
    assert keys[0] == ["0"]
    assert keys[-1] == ["0", "0.0/1", "0.1/1"]
    assert [c.change.verdict.part for c in report.culprits] == ["a", "b"]
    assert [[s.id for s in c.suspects] for c in report.culprits] == [[first[3]], [second[9]]]
    assert [c.path for c in report.culprits] == [("0", "0.0/1"), ("0", "0.1/1")]
    assert all(c.change.verdict.confirmed for c in report.culprits)
    assert report.culprits[0].suspects[0].author == "Ann Author"
    # Once the change is one repository's, only its commits are looked at.
    others = [
        {point.point.parts[name] for point in stage.points} for stage, name in zip(report.stages[1:], "ba", strict=True)
    ]
    assert [len(commits) for commits in others] == [1, 1]


@pytest.mark.slow
def test_a_merge_is_looked_into(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "lib")
    ids = dated_commits(repository, [100, 100])
    repository.git("checkout", "--quiet", "-b", "topic")
    for number, speed in enumerate((100, 90, 90), 2):
        repository.write("speed", f"{speed}\n")
        repository.write("topic", f"{number}\n")
        ids.append(commit_at(repository, BEGAN + number * timedelta(minutes=10), f"topic {number}"))
    repository.git("checkout", "--quiet", "main")
    repository.write("notes", "more\n")
    commit_at(repository, BEGAN + timedelta(minutes=51), "meanwhile")
    repository.git("merge", "--quiet", "--no-ff", "-m", "merge topic", "topic")
    last = repository.git("rev-parse", "HEAD").strip()
    more = f'[commits]\ngood = {{ lib = "{ids[0]}" }}\nbad = {{ lib = "{last}" }}\n'
    probe = "echo speed: $(cat speed)"
    report = hunted(commits_hunt(tmp_path / "hunt", {"lib": repository}, probe, more, ["commits"]))
    assert [s.key for s in report.stages] == ["0", "0.0/1"]
    (culprit,) = report.culprits
    assert [s.id for s in culprit.suspects] == [ids[3]]
    assert culprit.suspects[0].title == "topic 3"


@pytest.mark.slow
def test_a_change_that_does_not_show_at_the_finer_stage_is_said(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "lib")
    dated_commits(repository, [100] * 3 + [90] * 10)
    # Nothing is rebuilt where commits are looked at.
    probe = '[ "$KARAT_STAGE" = commits ] && echo speed: 100 || echo speed: $(cat speed)'
    stages = ["checkouts by hour", "commits"]
    file = commits_hunt(tmp_path / "hunt", {"lib": repository}, probe, HOURS.replace("T02:30", "T02:00"), stages)
    report = hunted(file)
    (culprit,) = report.culprits
    assert culprit.stage == "0", "as close as the hunt came"
    assert culprit.change.zoom == "0.0/1"
    assert culprit.change.verdict.confirmed is True, "it holds where it was seen"
    (said,) = [f for f in findings_of(report) if f.kind == "not-reproduced"]
    assert "nothing was rebuilt" in said.message
    assert said.where == "0.0/1"
    assert int(exit_code(findings_of(report))) == 1


@pytest.mark.slow
def test_changes_of_two_metrics_at_one_place_are_looked_into_once(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "lib")
    ids = dated_commits(repository, [100] * 4 + [90] * 9)
    more = f"""
[[probe.metrics]]
name = "loss"
regex = 'loss: ([0-9.]+)'
better = "lower"
{HOURS.replace("T02:30", "T02:00")}"""
    probe = "echo speed: $(cat speed); echo loss: $(( 200 - $(cat speed) ))"
    stages = ["checkouts by hour", "commits"]
    report = hunted(commits_hunt(tmp_path / "hunt", {"lib": repository}, probe, more, stages))
    assert [s.key for s in report.stages] == ["0", "0.0/1"]
    assert sorted(c.metric for c in report.culprits) == ["loss", "speed"]
    assert {c.suspects[0].id for c in report.culprits} == {ids[4]}
    assert {kind for kind, _, _ in found(report)} == {"regression"}


@pytest.mark.slow
def test_a_crash_is_followed_to_its_commit(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "lib")
    ids = dated_commits(repository, [100] * 4 + ["boom"] * 9)
    probe = 'case $(cat speed) in boom) echo "ValueError: boom" >&2; exit 1;; *) echo speed: 100;; esac'
    stages = ["checkouts by hour", "commits"]
    file = commits_hunt(tmp_path / "hunt", {"lib": repository}, probe, HOURS.replace("T02:30", "T02:00"), stages)
    report = hunted(file)
    (culprit,) = report.culprits
    assert culprit.change.kind == "crash"
    assert [s.id for s in culprit.suspects] == [ids[4]]
    assert culprit.change.verdict.confirmed is True
    assert int(exit_code(findings_of(report))) == 1


@pytest.mark.slow
def test_a_finer_stage_that_cannot_be_opened_is_said_and_tried_again(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "lib")
    ids = dated_commits(repository, [100] * 4 + [90] * 9)
    probe = "echo speed: $(cat speed)"
    stages = ["checkouts by hour", "commits"]
    hours = HOURS.replace("T02:30", "T02:00")
    wrong = f'{hours}\n[commits]\ncontainer = "last good"\n'
    file = commits_hunt(tmp_path / "hunt", {"lib": repository}, probe, wrong, stages)
    report = hunted(file)
    assert report.state == "stopped"
    assert "change 0.0 could not be zoomed into at 'commits'" in report.notes[0]
    assert [c.stage for c in report.culprits] == ["0"], "what was found is told all the same"
    commits_hunt(tmp_path / "hunt", {"lib": repository}, probe, hours, stages)
    report = hunted(file)
    assert report.state == "done"
    assert [s.id for s in report.culprits[0].suspects] == [ids[4]]


@pytest.mark.slow
@pytest.mark.parametrize("stages", [["commits"], ["checkouts by hour", "commits"]])
def test_what_takes_two_repositories_names_both_commits(tmp_path: Path, stages: list[str]) -> None:
    """`a` changes in the first hour, which alone does nothing; `b` in the last, and then it shows."""
    a, b = Repository(tmp_path / "a"), Repository(tmp_path / "b")
    first = dated_commits(a, [0] * 3 + [1] * 13)
    second = dated_commits(b, [0] * 13 + [1] * 3)
    probe = "echo speed: $(( 100 - 20 * $(cat a/speed) * $(cat b/speed) ))"
    ends = f'good = {{ a = "{first[0]}", b = "{second[0]}" }}' if stages == ["commits"] else ""
    more = f"{HOURS.replace('T02:30', 'T03:00')}\n{f'[commits]{chr(10)}{ends}' if ends else ''}"
    report = hunted(commits_hunt(tmp_path / "hunt", {"a": a, "b": b}, probe, more, stages))
    (culprit,) = report.culprits
    assert {s.part: s.id for s in culprit.suspects} == {"a": first[3], "b": second[13]}
    assert culprit.change.verdict.interaction
    assert culprit.change.verdict.confirmed is True
    assert culprit.change.new.parts["b"] == second[13], "when it began to show"
    assert "together" in say.blame(culprit.change)
    assert say.named(culprit)
    assert f"b {second[13][:12]} change 13 (Ann Author) together with a {first[3][:12]}" in say.headline(culprit)


@pytest.mark.slow
def test_what_one_repository_does_alone_is_not_called_an_interaction(tmp_path: Path) -> None:
    repositories, first, second = two(tmp_path)
    ends = f'[commits]\ngood = {{ a = "{first[0]}", b = "{second[0]}" }}\n'
    report = hunted(commits_hunt(tmp_path / "hunt", repositories, BOTH, ends, ["commits"]))
    assert [[s.id for s in c.suspects] for c in report.culprits] == [[first[3]], [second[9]]]
    assert not any(c.change.verdict.interaction for c in report.culprits)


@pytest.mark.slow
@pytest.mark.parametrize("guilty", [0, 1, 2])
def test_an_octopus_merge_is_looked_into_branch_by_branch(tmp_path: Path, guilty: int) -> None:
    repository = Repository(tmp_path / "lib")
    ids = dated_commits(repository, [100, 100])
    culprit = ""
    for branch in range(3):
        repository.git("checkout", "--quiet", "-b", f"topic{branch}", ids[1 if branch else 0])
        for number in range(4):
            repository.write(f"topic{branch}", f"{number}\n")
            if (branch, number) == (guilty, 2 if branch else 0):
                repository.write("slow", "10\n")
            made = commit_at(
                repository, BEGAN + timedelta(minutes=20 + 5 * number + branch), f"topic {branch} {number}"
            )
            if (branch, number) == (guilty, 2 if branch else 0):
                culprit = made
    repository.git("checkout", "--quiet", "main")
    repository.git("merge", "--quiet", "--no-ff", "-m", "octopus", *(f"topic{branch}" for branch in range(3)))
    last = repository.git("rev-parse", "HEAD").strip()
    more = f'[commits]\ngood = {{ lib = "{ids[0]}" }}\nbad = {{ lib = "{last}" }}\n'
    probe = "echo speed: $(( $(cat speed) - $(cat slow 2>/dev/null || echo 0) ))"
    report = hunted(commits_hunt(tmp_path / "hunt", {"lib": repository}, probe, more, ["commits"]))
    (found,) = report.culprits
    assert [s.id for s in found.suspects] == [culprit]
    assert found.change.kind == "regression"
    assert found.change.verdict.confirmed is True
    assert len([p for p in report.stages[1].points if p.attempts]) < len(report.stages[1].points)
