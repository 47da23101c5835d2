"""Reports of hunts, made by hand: a nightly stage with a dip, a crash and a gap, and a zoom that ends at a commit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from karat.changepoints.series import Outcome
from karat.hunts.model import (
    Attempt,
    ChangeReport,
    Culprit,
    HuntReport,
    Missed,
    Point,
    PointReport,
    Span,
    StageReport,
    Suspect,
    Verdict,
)

START = datetime(2023, 8, 1, tzinfo=UTC)
NIGHTS = [577.3, 577.1, 570.2, 570.1, 577.2, 577.4, None, 577.3, "crash", 536.7, 536.6, "hang", 536.8]
TRACE = 'File "/srv/run.py", line 5, in <module>\nImportError: cannot import name \'<b>x</b>\' from "jax"'
TITLE = "Fuse convolutions | `more` <img src=x onerror=alert(1)> @everyone"


def point(name: str, when: datetime | None = None, **parts: str) -> Point:
    return Point(id=name, label=name, when=when, parts=parts)


def attempt(stage: str, name: str, outcome: Outcome, value: float | None = None, signature: str = "") -> Attempt:
    samples = {} if value is None else {"MLUPS": (value,)}
    return Attempt(
        stage=stage,
        point=name,
        number=1,
        outcome=outcome,
        samples=samples,
        seconds=2.5,
        started=1.7e9,
        where="host slot 0",
        identity={"image.digest": f"sha256:{name}"},
        identity_key=name,
        signature=signature,
    )


def night(index: int, what: float | str | None) -> PointReport:
    when = START + timedelta(days=index)
    name = when.strftime("%Y-%m-%d")
    made = Point(id=name, label=name, when=when, parts={"image": f"registry.example/jax:nightly-{name}"})
    if what is None:
        gone = Point(id=name, label=name, when=when, missing="the registry has no such tag")
        return PointReport(point=gone, outcome=Outcome.MISSING)
    if isinstance(what, float):
        tried = attempt("0", name, Outcome.OK, what)
        return PointReport(point=made, outcome=Outcome.OK, values={"MLUPS": (what,)}, attempts=(tried,))
    outcome = Outcome(what)
    said = "ImportError: cannot import name '<b>x</b>' from \"jax\"" if what == "crash" else "no end within 600 s"
    tried = attempt("0", name, outcome, signature=said)
    return PointReport(point=made, outcome=outcome, attempts=(tried,), log=TRACE)


def change(stage: StageReport | list[PointReport], good: int, bad: int, kind: str, **rest: object) -> ChangeReport:
    points = stage if isinstance(stage, list) else list(stage.points)
    old, new = points[good], points[bad]
    span = Span(
        metric="MLUPS",
        good=good,
        bad=bad,
        confidence=0.9987,
        kind="regression" if kind == "dip" else kind,
        before=next(iter(old.values.get("MLUPS", ())), None),
        after=next(iter(new.values.get("MLUPS", ())), None),
        between=tuple(range(good + 1, bad)),
    )
    return ChangeReport(span=span, old=old.point, new=new.point, kind=kind, **rest)  # type: ignore[arg-type]


def nightly() -> HuntReport:
    """Two stages: nights, then commits of the last change."""
    nights = [night(i, what) for i, what in enumerate(NIGHTS)]
    there, back = change(nights, 1, 2, "dip", dip=0), change(nights, 3, 4, "dip", dip=0)
    worse = change(nights, 7, 9, "regression", zoom="0.2/1")
    commits = [_commit(0, 577.2), _commit(1, 577.3), _commit(2, 536.7), _commit(3, 536.8)]
    who = Suspect(
        part="xla",
        id="c" * 40,
        title=TITLE,
        author="A. N. Author",
        when=START,
        link=f"https://github.com/openxla/xla/commit/{'c' * 40}",
    )
    found = change(
        commits,
        1,
        2,
        "regression",
        suspects=(who,),
        reproduce="karat hunt show 'xla@cccccccc' --stage 0.2/1",
        verdict=Verdict(part="xla", tried=("old jax with new xla: 536.7 (bad)",), confirmed=True, confidence=0.9997),
    )
    first = StageReport(
        key="0",
        title="containers by day",
        timeline="containers",
        state="done",
        points=tuple(nights),
        runs=12,
        changes=(there, back, worse),
        seconds=300.0,
        missed=Missed(
            longest_dip=1, runs_to_rule_out=3, message="a dip of one night could hide; 3 more runs rule it out"
        ),
    )
    second = StageReport(
        key="0.2/1",
        title="commits from 2023-08-08 to 2023-08-10",
        timeline="commits",
        state="done",
        points=tuple(commits),
        changes=(found,),
        runs=9,
        seconds=4000.0,
        flake_rate=0.1,
        notes=("one of 9 runs failed and passed when it was run again",),
    )
    culprits = (
        Culprit(change=there, stage="0", path=("0",), metric="MLUPS", better="higher"),
        Culprit(change=back, stage="0", path=("0",), metric="MLUPS", better="higher"),
        Culprit(change=found, stage="0.2/1", path=("0", "0.2/1"), metric="MLUPS", better="higher", suspects=(who,)),
    )
    return HuntReport(
        name="mlups",
        file="hunt.toml",
        journal=".karat/hunt/mlups.hunt",
        command=("bash", "/dir/test.sh"),
        state="done",
        stages=(first, second),
        culprits=culprits,
        runs=21,
        seconds=4300.0,
        units={"MLUPS": "MLUPS/s"},
    )


def _commit(index: int, value: float) -> PointReport:
    letter = "abcd"[index]
    name = f"xla@{letter * 8}"
    made = Point(
        id=name,
        label=name,
        title=f"Tidy <i>{letter}</i>",
        when=START + timedelta(hours=index),
        parts={"xla": letter * 40, "jax": "1" * 40},
    )
    tried = attempt("0.2/1", name, Outcome.OK, value)
    return PointReport(point=made, outcome=Outcome.OK, values={"MLUPS": (value,)}, attempts=(tried,))


def nothing() -> HuntReport:
    """A hunt that found nothing, and was stopped."""
    nights = tuple(night(i, 577.3) for i in range(3))
    stage = StageReport(key="0", title="containers by day", timeline="containers", state="stopped", points=nights)
    return HuntReport(name="quiet", file="hunt.toml", journal="quiet.hunt", state="stopped", stages=(stage,))
