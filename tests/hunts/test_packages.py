from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import missing
from factories.hunt_files import place, settings
from factories.package_indexes import PackageIndex, unbuildable, wheel
from karat.engines.job import JobResult
from karat.engines.runner import Slot, run_job
from karat.findings import UsageError
from karat.hunts.model import Attempt, Point, Window
from karat.hunts.probe import outcomes
from karat.hunts.probe.jobs import job_for
from karat.hunts.settings import HuntSettings, stages
from karat.hunts.timelines.packages import find_uv
from karat.hunts.timelines.timeline import Timeline, open_timeline

SECRET = "ghp_PlantedPassword0000000000000000000"  # noqa: S105 - planted, and looked for afterwards
PRINT = '["python", "-c", "import toy; print(\'SPEED:\', toy.speed)"]'

if importlib.util.find_spec("uv") is None:
    missing("uv (pip install 'karat[hunt]')")


@pytest.fixture(autouse=True)
def _uv_for_itself(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path_factory.mktemp("uv-cache")))


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    with PackageIndex() as made:
        yield made


def hunt(index: PackageIndex, more: str = "", *, command: str = PRINT, probe: str = "") -> HuntSettings:
    table = f'stages = ["packages"]\n[packages]\nname = "toy"\nindex = "{index.url}"\n{more}\n'
    return settings(probe, table, command=command)


def opened(wanted: HuntSettings, root: Path, window: Window | None = None) -> Timeline:
    return open_timeline(wanted, stages(wanted)[0], window, place(root))


def run(wanted: HuntSettings, root: Path, version: str) -> tuple[JobResult, Attempt]:
    timeline = opened(wanted, root)
    point = next(p for p in timeline.points if p.id == version)
    job = job_for(timeline, point, wanted, key="k", place=place(root))
    came = run_job(job, Slot(number=0, area=root / "work" / "slot-0"), lambda: False)
    return came, outcomes.read_attempt(came, wanted, stage="0", point=point, number=1, place=place(root))


def test_points_are_versions_and_say_what_cannot_be_had(index: PackageIndex, tmp_path: Path) -> None:
    index.add("toy", "1.10", upload_time="2022-01-01T00:00:00Z")
    index.add("toy", "1.9")
    index.add("toy", "2.0", requires_python=">=4")
    index.add("toy", "2.1rc1")
    index.add("toy", "2.1rc2")
    index.add("toy", "2.2", yanked="wrong")
    timeline = opened(hunt(index), tmp_path)
    assert [(p.id, bool(p.missing)) for p in timeline.points] == [("1.9", False), ("1.10", False), ("2.0", True)]
    assert timeline.points[1].when is not None
    assert timeline.notes == [
        "2 pre-releases of toy left out; packages.prereleases = true includes them",
        "1 yanked version of toy left out; start and end may name one",
    ]
    everything = opened(hunt(index, "prereleases = true"), tmp_path)
    assert [p.id for p in everything.points] == ["1.9", "1.10", "2.0", "2.1rc1", "2.1rc2"]
    named = opened(hunt(index, 'start = "2.1rc1"\nend = "2.2"'), tmp_path)
    assert [p.id for p in named.points] == ["2.1rc1", "2.2"]
    window = Window(old=Point(id="1.9", label=""), new=Point(id="1.10", label=""))
    assert [p.id for p in opened(hunt(index), tmp_path, window).points] == ["1.9", "1.10"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('start = "3"', "found none \\(the index has 1.0 to 1.0\\)"),
        ('start = "x"', "expected a version"),
        ('python = "/no/such/python"', "packages.python: expected a version"),
        ('start = "2"\nend = "1"', "expected start up to end"),
    ],
)
def test_mistakes(index: PackageIndex, tmp_path: Path, more: str, said: str) -> None:
    index.add("toy", "1.0")
    with pytest.raises(UsageError, match=said):
        opened(hunt(index, more), tmp_path)


@pytest.mark.slow
def test_a_version_runs_in_its_own_environment(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("toy", "1.0", "speed = 10")
    index.add("toy", "2.0", "speed = 7")
    # `toy==1.0` would be this one.
    index.add("toy", "1.0+cpu", "speed = 55")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "toy.py").write_text("speed = 99\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    old, new = run(hunt(index), tmp_path, "1.0")[1], run(hunt(index), tmp_path, "2.0")[1]
    assert (old.samples, new.samples) == ({"speed": (10.0,)}, {"speed": (7.0,)})
    assert old.identity == {"package.toy": "1.0"}
    assert old.identity_key != new.identity_key


@pytest.mark.slow
def test_an_environment_is_made_once_and_a_half_one_again(index: PackageIndex, tmp_path: Path) -> None:
    index.add("toy", "1.0", "speed = 10")
    first, _ = run(hunt(index), tmp_path, "1.0")
    again, _ = run(hunt(index), tmp_path, "1.0")
    assert [r.skipped for r in first.ran] == [False, False, False, False, False]
    assert [r.skipped for r in again.ran] == [True, True, True, False, False]
    (folder,) = (tmp_path / "work" / "slot-0" / "environments").iterdir()
    (folder / "karat-is-whole").unlink()
    (folder / "bin" / "python").unlink()
    healed, attempt = run(hunt(index), tmp_path, "1.0")
    assert [r.exit_code for r in healed.ran] == [0, 0, 0, 0, 0]
    assert attempt.samples == {"speed": (10.0,)}


@pytest.mark.slow
def test_a_dependency_that_moved_with_it_is_a_suspect(index: PackageIndex, tmp_path: Path) -> None:
    index.add("toy", "1.0", "from dep import speed", requires=["dep<2"], upload_time="2021-01-01T00:00:00Z")
    index.add("toy", "2.0", "from dep import speed", requires=["dep>1"], upload_time="2023-01-01T00:00:00Z")
    index.add("dep", "1.0", "speed = 1", upload_time="2020-01-01T00:00:00Z")
    index.add("dep", "2.0", "speed = 2", upload_time="2022-01-01T00:00:00Z")
    then = hunt(index)
    old, new = run(then, tmp_path, "1.0")[1], run(then, tmp_path, "2.0")[1]
    assert (old.samples, new.samples) == ({"speed": (1.0,)}, {"speed": (2.0,)})
    assert (old.identity["package.dep"], new.identity["package.dep"]) == ("1.0", "2.0")
    timeline = opened(then, tmp_path)
    found = timeline.suspects(timeline.points[0], timeline.points[1])
    assert [(s.part, s.id, s.title) for s in found] == [("dep", "2.0", "moved with it, from 1.0"), ("toy", "2.0", "")]


@pytest.mark.slow
def test_what_does_not_build_or_resolve_is_broken(index: PackageIndex, tmp_path: Path) -> None:
    index.file("toy", "toy-1.0.tar.gz", unbuildable("toy", "1.0"))
    index.add("toy", "1.1", requires=["nothing-of-the-kind"])
    for version in ("1.0", "1.1"):
        attempt = run(hunt(index), tmp_path, version)[1]
        assert attempt.outcome.value == "broken"
        assert attempt.signature.startswith("install: ")


@pytest.mark.slow
def test_programs_of_a_package_are_found_and_requires_are_installed(index: PackageIndex, tmp_path: Path) -> None:
    data = wheel(
        "toy",
        "1.0",
        {"toy.py": "def main():\n    import extra\n    print('SPEED:', extra.n)\n"},
        scripts="toy-bench = toy:main",
    )
    index.file("toy", "toy-1.0-py3-none-any.whl", data)
    index.add("extra", "3.0", "n = 3")
    wanted = hunt(index, 'requires = ["extra<4"]', command='["toy-bench"]')
    attempt = run(wanted, tmp_path, "1.0")[1]
    assert attempt.samples == {"speed": (3.0,)}
    assert attempt.identity == {"package.toy": "1.0", "package.extra": "3.0"}


@pytest.mark.slow
def test_a_password_is_on_no_command_line_and_in_no_output(tmp_path: Path) -> None:
    with PackageIndex(password=SECRET) as index:
        index.add("toy", "1.0", "speed = 5")
        wanted = settings(
            "", f'stages = ["packages"]\n[packages]\nname = "toy"\nindex = "{index.with_password}"\n', command=PRINT
        )
        timeline = opened(wanted, tmp_path)
        job = job_for(timeline, timeline.points[0], wanted, key="k", place=place(tmp_path))
        came, attempt = run(wanted, tmp_path, "1.0")
    assert attempt.samples == {"speed": (5.0,)}
    assert SECRET not in "".join(word for command in job.commands for word in command.argv)
    assert SECRET.encode() not in b"".join(r.output for r in came.ran)


def test_a_folder_of_the_same_name_is_warned_of(index: PackageIndex, tmp_path: Path) -> None:
    index.add("toy", "1.0", "speed = 5")
    assert not opened(hunt(index), tmp_path).notes
    (tmp_path / "toy.py").write_text("speed = 1\n", encoding="utf-8")
    (note,) = opened(hunt(index), tmp_path).notes
    assert "found toy beside hunt.toml" in note


def test_a_python_by_its_version(index: PackageIndex, tmp_path: Path) -> None:
    index.add("toy", "1.0", "speed = 5", requires_python=">=3.11")
    here = ".".join(map(str, sys.version_info[:2]))
    assert not opened(hunt(index, f'python = "{here}"'), tmp_path).points[0].missing
    assert not opened(hunt(index, f'python = "{sys.executable}"'), tmp_path).points[0].missing
    assert opened(hunt(index, 'python = "3.8"'), tmp_path).points[0].missing


def test_uv_beside_karat_serves_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_uv() == (sys.executable, "-P", "-m", "uv")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="needs uv") as caught:
        find_uv()
    assert caught.value.next_command == "pip install 'karat[hunt]'"
