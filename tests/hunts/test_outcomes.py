from __future__ import annotations

from math import isfinite
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from factories.hunt_files import POINT, place, ran, result, settings
from karat.changepoints.series import Outcome
from karat.engines.job import JobResult, Ran
from karat.hunts.model import Attempt, Point
from karat.hunts.probe.outcomes import is_hunted_crash, read_attempt as read, search_metrics
from karat.hunts.search.observations import observed_in
from karat.hunts.settings import CrashSettings, HuntSettings

EXIT = '[[probe.metrics]]\nname = "test"\nexit_code = true\n'
TRACEBACK = "Traceback (most recent call last):\n  File \"x.py\", line 5, in <module>\nImportError: cannot import name 'a' from 'b'\n"


def read_one(came: JobResult, hunt: HuntSettings | None = None, point: Point = POINT) -> Attempt:
    return read(came, hunt or settings(), stage="0", point=point, number=1, place=place(Path()))


def test_what_ran_has_its_values() -> None:
    attempt = read_one(result(ran("SPEED: 12.5\n"), identity={"value": "a"}, identity_key="k"))
    assert attempt.samples == {"speed": (12.5,)}
    assert (attempt.outcome, attempt.signature, attempt.hunted) == (Outcome.OK, "", None)
    assert (attempt.identity_key, attempt.started, attempt.seconds, attempt.where) == ("k", 1000.0, 2.0, "here")


@pytest.mark.parametrize(
    ("came", "signature", "note"),
    [
        (result(lost="node 10.0.0.2 is gone"), "", "the worker was lost: node 10.0.0.2 is gone"),
        (
            result(Ran(role="prepare", name="pull", exit_code=1, output=b"error: no such image")),
            "pull: error: no such image",
            "pull failed",
        ),
        (
            result(
                Ran(
                    role="prepare",
                    name="pull",
                    exit_code=1,
                    output=b"Pulling\nError response from daemon: manifest unknown\n",
                )
            ),
            "pull: error: Error response from daemon: manifest unknown",
            "manifest unknown",
        ),
        (result(Ran(role="build", exit_code=2, output=b"a.c:1: error: no")), "build: error: no", "build failed"),
        (result(Ran(role="build", exit_code=None, timed_out=True)), "build: timed out", "build failed: timed out"),
        (result(Ran(role="identify", name="identify", exit_code=3)), "identify: exit code 3", "identify failed"),
        (
            result(Ran(role="prepare", name="setup", error="no such file")),
            "setup: could not be started",
            "no such file",
        ),
        (result(ran(exit_code=125)), "exit code 125", "cannot be tested here"),
        (
            result(ran(exit_code=None, error="/x/probe: not found")),
            "'probe' could not be started",
            "the command 'probe' could not be started: /x/probe: not found",
        ),
        (result(), "", "nothing was run"),
    ],
)
def test_what_could_not_be_tried_is_broken(came: JobResult, signature: str, note: str) -> None:
    attempt = read_one(came)
    assert attempt.outcome is Outcome.BROKEN
    assert signature in attempt.signature
    assert note in attempt.note
    assert attempt.samples == {}


@pytest.mark.parametrize(
    ("probe", "fields"),
    [
        ('[[probe.metrics]]\nname = "m"\nregex = "(a+)+b"\n', {}),
        ('[probe.crash]\npattern = "(a+)+b"\n', {"exit_code": 1}),
    ],
)
def test_a_pattern_without_an_end_is_called_off(
    probe: str, fields: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("karat.system.time_limit.PERIOD", 0.05)
    attempt = read_one(result(ran("a" * 60, **fields)), settings(probe))
    assert attempt.outcome is Outcome.BROKEN
    assert "the pattern '(a+)+b' does not finish on a line" in attempt.note


def test_what_was_allowed_to_fail_before_the_run_is_nothing() -> None:
    came = result(Ran(role="prepare", exit_code=1), Ran(role="build", skipped=True), ran("SPEED: 1"))
    assert read_one(came).outcome is Outcome.OK


def test_a_failure_is_a_crash_with_its_name() -> None:
    attempt = read_one(result(ran(TRACEBACK, exit_code=1)))
    assert (attempt.outcome, attempt.signature) == (Outcome.CRASH, "ImportError: cannot import name 'a' from 'b'")
    assert read_one(result(ran(exit_code=None, signal=11))).signature == "SIGSEGV"


def test_a_value_of_a_run_that_failed_is_none() -> None:
    attempt = read_one(result(ran("SPEED: 5\n" + TRACEBACK, exit_code=1)))
    assert attempt.samples == {}


def test_a_time_out_is_a_hang() -> None:
    attempt = read_one(result(ran("SPEED: 5", exit_code=None, timed_out=True)))
    assert (attempt.outcome, attempt.samples) == (Outcome.HANG, {})
    assert read_one(result(ran("", exit_code=None, timed_out=True)), settings(EXIT)).outcome is Outcome.HANG


@pytest.mark.parametrize(
    ("output", "signature"),
    [
        ("", "no value for speed"),
        ("SPEED: nan", "speed is nan"),
        ("SPEED: -inf", "speed is -inf"),
        ("SPEED: fast", "speed is not a number: 'fast'"),
    ],
)
def test_a_run_without_a_number_is_a_crash_of_that_name(output: str, signature: str) -> None:
    attempt = read_one(result(ran(output)))
    assert (attempt.outcome, attempt.signature, attempt.samples) == (Outcome.CRASH, signature, {})


@given(st.text(max_size=30))
def test_only_finite_numbers_are_values(text: str) -> None:
    attempt = read_one(result(ran(f"SPEED: {text}".encode(errors="replace"))))
    values = attempt.samples.get("speed", ())
    assert all(isfinite(value) for value in values)
    assert (attempt.outcome is Outcome.OK) == bool(values)


def test_an_exit_code_that_is_a_metric_is_no_crash() -> None:
    hunt = settings(EXIT + '[[probe.metrics]]\nname = "speed"\nregex = "SPEED: (.*)"')
    failed = read_one(result(ran(TRACEBACK, exit_code=1)), hunt)
    assert (failed.outcome, failed.samples) == (Outcome.OK, {"test": (1.0,)})
    killed = read_one(result(ran("", exit_code=None, signal=9)), hunt)
    assert killed.samples == {"test": (1.0,)}
    assert read_one(result(ran("SPEED: 3")), hunt).samples == {"test": (0.0,), "speed": (3.0,)}
    assert read_one(result(ran(exit_code=125)), hunt).outcome is Outcome.BROKEN


def test_repeats_that_disagree_say_so() -> None:
    attempt = read_one(result(ran("SPEED: 1"), ran("SPEED: 2"), ran(TRACEBACK, exit_code=1)), settings("repeats = 3"))
    assert (attempt.outcome, attempt.samples) == (Outcome.CRASH, {"speed": (1.0, 2.0)})
    assert attempt.note == "1 of 3 runs crashed: ImportError: cannot import name 'a' from 'b'"
    skipped = read_one(result(ran("SPEED: 1"), ran(exit_code=125)), settings("repeats = 2"))
    assert (skipped.outcome, skipped.samples) == (Outcome.OK, {"speed": (1.0,)})
    assert skipped.note == "1 of 2 runs could not be tried: exit code 125"


def test_each_repeat_reads_its_own_file_and_only_the_last_the_commands_folder() -> None:
    hunt = settings('repeats = 2\n[[probe.metrics]]\nname = "n"\njson = "n"\nfile = "r.json"')
    own = {"run-1/r.json": b'{"n": 1}', "run-2/r.json": b'{"n": 2}', "r.json": b'{"n": 3}'}
    assert read_one(result(ran(), ran(), files=own), hunt).samples == {"n": (1.0, 2.0)}
    only = read_one(result(ran(), ran(), files={"r.json": b'{"n": 3}'}), hunt)
    assert (only.outcome, only.samples) == (Outcome.CRASH, {"n": (3.0,)})


def test_a_warm_up_that_failed_stands_for_the_run() -> None:
    came = result(Ran(role="warmup", exit_code=1, output=TRACEBACK.encode()))
    assert read_one(came).signature.startswith("ImportError")


def test_what_the_engine_noted_is_told() -> None:
    assert read_one(result(ran("SPEED: 1"), notes=("a.log: too large",))).note == "a.log: too large"


def test_a_container_engines_own_failure_is_no_crash() -> None:
    came = result(ran("Error: no such container x\n", exit_code=126))
    inside = Point(id="d", label="d", parts={"image": "r/x:1"})
    assert read_one(came, point=inside).outcome is Outcome.BROKEN
    assert "no such container" in read_one(came, point=inside).note
    assert read_one(came).outcome is Outcome.CRASH


def test_another_commit_than_asked_for_says_nothing_of_the_point() -> None:
    point = Point(id="p", label="p", parts={"xla": "1a2b3c4d5e6f"})
    other = read_one(result(ran("SPEED: 1"), identity={"commit.xla": "ffffffffff"}), point=point)
    assert (other.outcome, other.signature) == (Outcome.BROKEN, "another commit under test")
    assert other.note == "expected xla 1a2b3c4d5e under test, found xla ffffffffff: nothing was rebuilt"
    for same in ("1a2b3c4", "1a2b3c4d5e6f", "v1.2"):
        found = read_one(result(ran("SPEED: 1"), identity={"commit.xla": same}), point=point)
        assert found.outcome is Outcome.OK


def test_a_shared_result_has_nothing_of_its_own() -> None:
    attempt = read_one(result(shared=True, identity_key="k"))
    assert (attempt.samples, attempt.note, attempt.identity_key) == ({}, "", "k")


HUNTED = settings('[probe.crash]\nkind = "exception"\npattern = "ImportError"')


def test_a_hunted_crash_is_a_metric_and_another_error_is_not_taken_for_it() -> None:
    bad = read_one(result(ran(TRACEBACK, exit_code=1)), HUNTED)
    assert (bad.outcome, bad.hunted, bad.samples) == (Outcome.CRASH, True, {"crash": (1.0,)})
    good = read_one(result(ran("fine")), HUNTED)
    assert (good.outcome, good.hunted, good.samples) == (Outcome.OK, False, {"crash": (0.0,)})
    other = read_one(result(ran("ValueError: no\n", exit_code=1)), HUNTED)
    assert (other.outcome, other.hunted, other.samples) == (Outcome.BROKEN, False, {})
    assert other.note.startswith("another error: ")
    hung = read_one(result(ran(exit_code=None, timed_out=True)), HUNTED)
    assert (hung.outcome, hung.hunted) == (Outcome.BROKEN, False)


def test_a_strategy_sees_values_of_what_was_ok_and_every_hunted_crash() -> None:
    listed = [
        read_one(result(ran(TRACEBACK, exit_code=1)), HUNTED),
        read_one(result(ran("fine")), HUNTED),
        read_one(result(ran("ValueError: no\n", exit_code=1)), HUNTED),
    ]
    seen = observed_in(listed)
    assert seen.values == {"crash": (1.0, 0.0)}
    assert seen.outcomes == (Outcome.CRASH, Outcome.OK, Outcome.BROKEN)
    flaky = read_one(result(ran("SPEED: 1"), ran(exit_code=1)), settings("repeats = 2"))
    assert observed_in([flaky]).values == {}


def test_metrics_of_a_hunt() -> None:
    hunt = settings(
        EXIT
        + '[[probe.metrics]]\nname = "speed"\nseconds = true\nbetter = "lower"\nthreshold = 3.0\n[probe.crash]\nkind = "any"'
    )
    assert [(m.name, m.better, m.threshold, m.binary) for m in search_metrics(hunt)] == [
        ("test", "lower", None, True),
        ("speed", "lower", 3.0, False),
        ("crash", "lower", None, True),
    ]


@pytest.mark.parametrize(
    ("metric", "better"),
    [
        ("seconds = true", "lower"),
        ("exit_code = true", "lower"),
        ('golden = "g"\nfile = "r"', "lower"),
        ('junit = "*"\nfile = "j"', "lower"),
        ('junit = "*"\nfile = "j"\nvalue = "failed"', "lower"),
        ('junit = "*"\nfile = "j"\nvalue = "passed"', "higher"),
        ('regex = "(.)"', None),
        ('json = "x"', None),
        ('seconds = true\nbetter = "higher"', "higher"),
    ],
)
def test_which_direction_is_better(metric: str, better: str | None) -> None:
    (found,) = search_metrics(settings(f'[[probe.metrics]]\nname = "m"\n{metric}'))
    assert found.better == better


@pytest.mark.parametrize("reverse", [False, True])
def test_of_several_runs_the_gravest_counts(*, reverse: bool) -> None:
    crash, hang = ran(TRACEBACK, exit_code=1), ran("", exit_code=None, timed_out=True)
    skipped, fine = ran(exit_code=125), ran("SPEED: 1")
    hunt = settings("repeats = 2")

    def outcome(*runs: Ran) -> Outcome:
        return read_one(result(*(reversed(runs) if reverse else runs)), hunt).outcome

    assert outcome(crash, hang) is Outcome.CRASH
    assert outcome(hang, skipped) is Outcome.HANG
    assert outcome(hang, fine) is Outcome.HANG
    # What could not be tried says nothing of what could.
    assert outcome(skipped, fine) is Outcome.OK


SEGV = ran(exit_code=None, signal=11)
SHELL = ran(exit_code=139)
HUNG = ran(exit_code=None, timed_out=True)
GRANDCHILD = "CalledProcessError: Command '['x']' died with <Signals.SIGSEGV: N>."
ERROR = ran("XlaRuntimeError: INTERNAL: bad\n", exit_code=1)


@pytest.mark.parametrize(
    ("crash", "came", "signature", "hunted"),
    [
        (CrashSettings(), ERROR, "x", True),
        (CrashSettings(), HUNG, "timed out", True),
        (CrashSettings(pattern="INTERNAL"), ERROR, "XlaRuntimeError: INTERNAL: bad", True),
        (CrashSettings(pattern="INTERNAL"), SEGV, "SIGSEGV", False),
        (CrashSettings(kind="exception", pattern="^Xla.*INTERNAL"), ERROR, "something else", True),
        (CrashSettings(kind="exception", pattern="OutOfMemory"), ERROR, "XlaRuntimeError: INTERNAL: bad", False),
        (CrashSettings(kind="exception", pattern="timed out"), HUNG, "timed out", False),
        (CrashSettings(kind="exception", pattern="f(x"), ERROR, "f(x", True),
        (CrashSettings(kind="signal"), SEGV, "SIGSEGV", True),
        (CrashSettings(kind="signal"), SHELL, "SIGSEGV", True),
        (CrashSettings(kind="signal"), ERROR, "XlaRuntimeError", False),
        (CrashSettings(kind="signal"), HUNG, "timed out", False),
        (CrashSettings(kind="signal", signal="SIGSEGV"), SEGV, "SIGSEGV", True),
        (CrashSettings(kind="signal", signal="SIGSEGV"), SHELL, "SIGSEGV", True),
        (CrashSettings(kind="signal", signal="SIGSEGV"), ran(exit_code=1), "SIGSEGV", True),
        (CrashSettings(kind="signal", signal="SIGABRT"), SEGV, "SIGSEGV", False),
        (CrashSettings(kind="signal"), ran(exit_code=255), "exit code 255", False),
        (CrashSettings(kind="signal"), ran(exit_code=128), "exit code 128", False),
        (CrashSettings(kind="signal"), ran(exit_code=None, signal=35), "signal 35", True),
        (CrashSettings(kind="signal", signal="SIGSEGV"), ran(exit_code=1), GRANDCHILD, True),
        (CrashSettings(kind="signal"), ran(exit_code=1), GRANDCHILD, True),
        (CrashSettings(kind="signal", signal="SIGABRT"), ran(exit_code=1), GRANDCHILD, False),
        (CrashSettings(kind="hang"), HUNG, "timed out", True),
        (CrashSettings(kind="hang"), ERROR, "XlaRuntimeError", False),
    ],
)
def test_kinds(crash: CrashSettings, came: Ran, signature: str, *, hunted: bool) -> None:
    assert is_hunted_crash(crash, came, signature) is hunted
