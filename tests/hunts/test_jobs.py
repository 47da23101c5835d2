from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from factories.hunt_files import place, settings
from karat.engines.job import Job, JobCommand, JobResult
from karat.engines.runner import Slot, run_job
from karat.hunts.probe import outcomes
from karat.hunts.probe.jobs import job_for, print_versions
from karat.hunts.settings import HuntSettings, stages
from karat.hunts.timelines.timeline import Timeline, open_timeline
from karat.hunts.timelines.values import Values


class Wrapped(Values):
    """A timeline that prepares something and wraps every command, as containers do."""

    def prepare(self, point: object) -> Sequence[JobCommand]:  # noqa: ARG002
        return (JobCommand(role="build", name="build", argv=("true",)),)

    def command(self, point: object, command: JobCommand) -> JobCommand:  # noqa: ARG002
        return msgspec.structs.replace(command, argv=("env", *command.argv))


def opened(hunt: HuntSettings, root: Path) -> Timeline:
    return open_timeline(hunt, stages(hunt)[0], None, place(root))


def job(hunt: HuntSettings, root: Path, known: Sequence[str] = ()) -> Job:
    timeline = opened(hunt, root)
    return job_for(timeline, timeline.points[0], hunt, key="k", place=place(root), known=known)


def ran(hunt: HuntSettings, root: Path) -> JobResult:
    return run_job(job(hunt, root), Slot(number=0, area=root / "slot-0"), lambda: False)


def test_the_order_is_prepare_setup_identify_packages_warm_ups_runs(tmp_path: Path) -> None:
    hunt = settings('setup = "s"\nidentify = "i"\npackages = ["numpy"]\nwarmups = 1\nrepeats = 2\ntimeout = "1 min"')
    timeline = Wrapped(["a"], tmp_path)
    made = job_for(timeline, timeline.points[0], hunt, key="k", known=("x",), place=place(tmp_path))
    assert [(c.role, c.name) for c in made.commands] == [
        ("build", "build"),
        ("prepare", "setup"),
        ("identify", "identify"),
        ("identify", "packages"),
        ("warmup", "warm-up 1"),
        ("measure", "run 1"),
        ("measure", "run 2"),
    ]
    assert all(c.argv[0] == "env" for c in made.commands[1:])
    assert {c.timeout for c in made.commands[1:]} == {60.0}
    assert (made.key, made.known, made.identity) == ("k", ("x",), {"value": "a"})


def test_a_probe_knows_its_point_and_its_own_folder(tmp_path: Path) -> None:
    made = job(settings("repeats = 2\n[probe.env]\nA = 'b'\nKARAT_STAGE = 'mine'\n" + METRIC), tmp_path)
    first, second = made.commands
    assert first.env == {
        "KARAT_POINT": "a",
        "KARAT_VALUE": "a",
        "KARAT_STAGE": "mine",
        "KARAT_ROOT": str(tmp_path),
        "KARAT_OUT": "@OUT@/run-1",
        "A": "b",
    }
    assert second.env["KARAT_OUT"] == "@OUT@/run-2"
    assert job(settings(), tmp_path).commands[0].env["KARAT_OUT"] == "@OUT@"


METRIC = '[[probe.metrics]]\nname = "m"\nseconds = true\n'


def test_names_in_braces_are_filled_in_and_other_braces_stay(tmp_path: Path) -> None:
    made = job(settings(command='["x", "{root}/{point}-{value}.py", "{other} {}"]'), tmp_path)
    assert made.commands[0].argv == ("x", f"{tmp_path}/a-a.py", "{other} {}")


def test_resources_and_files_come_from_the_file(tmp_path: Path) -> None:
    hunt = settings(
        'repeats = 2\nhash_files = ["build/*.so"]\n[[probe.metrics]]\nname = "m"\njson = "x"\nfile = "r.json"',
        '[engine]\ncores = 2\ngpus = 0.5\nmemory = "1 GiB"\nresources = { tpu = 1.0 }\n',
    )
    made = job(hunt, tmp_path)
    assert made.collect == ("run-1/r.json", "run-2/r.json", "r.json")
    assert made.hash_files == ("build/*.so",)
    assert (made.resources.cores, made.resources.gpus, made.resources.memory) == (2, 0.5, 1 << 30)
    assert made.resources.custom == {"tpu": 1.0}
    assert job(settings(), tmp_path).resources.cores == 1


@pytest.mark.parametrize(
    ("metric", "goes_on"),
    [
        ("exit_code = true", True),
        ('junit = "*"\nfile = "j.xml"', True),
        ("seconds = true", False),
        ('golden = "g"\nfile = "r"', False),
    ],
)
def test_only_what_reads_failures_goes_on_after_one(tmp_path: Path, metric: str, *, goes_on: bool) -> None:
    (tmp_path / "g").touch()
    made = job(settings(f'repeats = 2\n[[probe.metrics]]\nname = "m"\n{metric}'), tmp_path)
    assert {c.may_fail for c in made.commands} == {goes_on}


def test_a_real_run_has_values_identity_and_files_of_each_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `python3` is whatever comes first where the probe runs.
    here = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join([here, os.environ["PATH"]]))
    (tmp_path / "probe.sh").write_text(
        'echo "SPEED: 1,0$KARAT_VALUE"; echo "{\\"n\\": $(ls "$KARAT_OUT" | wc -l)}" > "$KARAT_OUT/r.json"\n',
        encoding="utf-8",
    )
    hunt = settings(
        'identify = "echo commit.x=1a2b3c4"\npackages = ["msgspec", "no-such-thing"]\nrepeats = 2\nwarmups = 1\n'
        '[[probe.metrics]]\nname = "speed"\nregex = "SPEED: (.*)"\n[[probe.metrics]]\nname = "n"\njson = "n"\nfile = "r.json"',
        '[values]\nlist = ["50"]\n',
        command='["sh", "probe.sh"]',
    )
    result = ran(hunt, tmp_path)
    point = opened(hunt, tmp_path).points[0]
    attempt = outcomes.read_attempt(result, hunt, stage="0", point=point, number=3, place=place(tmp_path))
    assert attempt.samples == {"speed": (1050.0, 1050.0), "n": (0.0, 0.0)}
    assert (attempt.outcome.value, attempt.number, attempt.note) == ("ok", 3, "")
    assert attempt.identity == {
        "value": "50",
        "commit.x": "1a2b3c4",
        "package.msgspec": msgspec.__version__,
        "package.no-such-thing": "not installed",
    }
    assert attempt.identity_key


def test_a_real_hang_and_a_real_crash(tmp_path: Path) -> None:
    hung = settings('timeout = "200 ms"', command='"sleep 30"')
    crashed = settings(command='["sh", "-c", "kill -SEGV $$"]')
    broken = settings('setup = "false"', command='"true"')
    absent = settings(command='"no-such-program-here"')
    found = []
    for hunt in (hung, crashed, broken, absent):
        point = opened(hunt, tmp_path).points[0]
        attempt = outcomes.read_attempt(
            ran(hunt, tmp_path), hunt, stage="0", point=point, number=1, place=place(tmp_path)
        )
        found.append((attempt.outcome.value, attempt.signature))
    assert found == [
        ("hang", "timed out"),
        ("crash", "SIGSEGV"),
        ("broken", "setup: exit code 1"),
        ("broken", "'no-such-program-here' could not be started"),
    ]


def installed(folder: Path, name: str, version: str) -> str:
    """A folder of the path that has a distribution."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return str(folder)


def test_of_two_of_one_name_it_is_the_one_that_is_imported(tmp_path: Path) -> None:
    first, second = installed(tmp_path / "1", "To.y", "2.0"), installed(tmp_path / "2", "to_y", "1.0")
    for path, version in (((first, second), "2.0"), ((second, first), "1.0")):
        done = subprocess.run(
            [sys.executable, "-S", *print_versions("to-y", "none")],
            env={"PYTHONPATH": os.pathsep.join(path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f"package.to-y={version}\npackage.none=not installed\n"
