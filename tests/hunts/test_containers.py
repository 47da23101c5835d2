"""The containers timeline for real: a registry on loopback, and podman, which runs what it holds."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from factories.container_engines import Podman
from factories.faults import Fault
from factories.guarded_registries import GuardedRegistry
from factories.registries import Image, Registry, digest_of, packed
from karat.engines.job import EngineSettings, Job, JobCommand, JobResult
from karat.engines.runner import Slot, run_job
from karat.findings import CannotVerify, UsageError
from karat.hunts.model import Point, Window
from karat.hunts.settings import ContainerSettings, HuntSettings, ProbeSettings, Stage
from karat.hunts.timelines.container_engine import ContainerEngine, engine_failure, find_engine
from karat.hunts.timelines.containers import Containers, list_images, notes_on_images, open_containers, open_registry
from karat.hunts.timelines.timeline import Timeline, Workspace
from karat.net.registry import Registry as Asked, parse

FIRST = dt.datetime(2023, 8, 20, tzinfo=dt.UTC)
STAGE = Stage(timeline="containers", step=86400.0, text="containers by day")
# One registry and one podman for all of these, in whichever process runs them.
pytestmark = pytest.mark.xdist_group("containers")


def night(number: int, *, labels: bool = True) -> Image:
    labelled = {"karat.commit.engine": f"{number:040x}"} if labels else {}
    return Image(layers=(packed({"opt/night": f"{number}\n".encode()}),), labels=labelled)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Six nights; the third has no image, and the fifth is the fourth's once more."""
    with Registry(tmp_path_factory.mktemp("registry")) as made:
        for number, what in enumerate((0, 1, None, 3, 3, 5)):
            if what is not None:
                made.push("toy/nightly", f"{FIRST + dt.timedelta(days=number):%Y-%m-%d}", night(what))
        yield made


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path, work=tmp_path / "work", hunt="h1")


def settings(registry: Registry, **changed: object) -> HuntSettings:
    own = ContainerSettings(
        image=f"{registry.host}/toy/nightly:{{date:%Y-%m-%d}}", start=FIRST, end=FIRST + dt.timedelta(days=5), ahead=0
    )
    return HuntSettings(
        stages=("containers by day",),
        probe=ProbeSettings(command=("true",)),
        containers=msgspec.structs.replace(own, **changed),
    )


@pytest.fixture
def timeline(podman: Podman, registry: Registry, place: Workspace) -> Iterator[Containers]:
    made = open_containers(settings(registry, mounts=(".:/dir:ro",)), STAGE, None, place)
    yield made
    made.close()
    assert podman.names() == []


def run(timeline: Timeline, point: Point, place: Workspace, *argv: str, timeout: float = 30) -> JobResult:
    own = JobCommand(role="measure", argv=argv, env={"TOKEN": "ghp-in-env"}, timeout=timeout)
    commands = (*timeline.prepare(point), timeline.command(point, own))
    job = Job(key="k", commands=commands, collect=("*.txt",))
    return run_job(job, Slot(number=0, area=place.work / "slot-0"), lambda: False)


def said(result: JobResult) -> str:
    return result.ran[-1].output.decode()


@pytest.mark.slow
def test_points_are_nights_and_those_without_an_image_say_so(timeline: Timeline, registry: Registry) -> None:
    names = [point.id for point in timeline.points]
    assert names == [f"2023-08-{day}" for day in range(20, 26)]
    missing = [point.id for point in timeline.points if point.missing]
    assert missing == ["2023-08-22"]
    assert timeline.points[2].missing == f"no image {registry.host}/toy/nightly:2023-08-22"
    (note,) = timeline.notes
    assert note.startswith("1 of 6 images do not exist: ")


def test_the_identity_is_the_digest_with_the_commits_of_the_labels(timeline: Timeline) -> None:
    first, fourth, fifth = (timeline.identity(timeline.points[n]) for n in (0, 3, 4))
    assert first["image.digest"].startswith("sha256:")
    assert first["commit.engine"] == "0" * 40
    assert fourth == fifth
    assert fourth != first


@pytest.mark.slow
def test_a_command_runs_in_the_image_of_its_night(timeline: Timeline, place: Workspace) -> None:
    (place.root / "test.sh").write_text(
        'cat /opt/night; test "$TOKEN" = ghp-in-env && echo "$TOKEN"; echo 1 > "$KARAT_OUT/x.txt"'
    )
    for index, content in ((0, "0"), (3, "3")):
        result = run(timeline, timeline.points[index], place, "sh", "/dir/test.sh")
        assert said(result).splitlines() == [content, "***"]
        assert result.files == {"x.txt": b"1\n"}
    told = timeline.command(timeline.points[0], JobCommand(role="measure", argv=("true",), env={"A": "b"}))
    assert not any(word == "b" or "=b" in word for word in told.argv)


@pytest.mark.slow
def test_a_tag_that_moves_does_not_change_under_a_hunt(
    timeline: Timeline, registry: Registry, place: Workspace
) -> None:
    registry.push("toy/nightly", "2023-08-21", night(99))
    assert said(run(timeline, timeline.points[1], place, "cat", "/opt/night")) == "1\n"
    registry.push("toy/nightly", "2023-08-21", night(1))


@pytest.mark.slow
def test_a_command_that_fails_is_told_from_an_engine_that_does(timeline: Timeline, place: Workspace) -> None:
    point = timeline.points[0]
    failed = run(timeline, point, place, "sh", "-c", "echo 'ValueError: no'; exit 1").ran[-1]
    assert failed.exit_code == 1
    assert not engine_failure(failed.exit_code, failed.output)
    absent = run(timeline, point, place, "nosuch").ran[-1]
    assert engine_failure(absent.exit_code, absent.output)


@pytest.mark.slow
def test_a_timeout_ends_the_container(timeline: Timeline, podman: Podman, place: Workspace) -> None:
    # A shell that is the first process of a container does not end by asking.
    hung = run(timeline, timeline.points[0], place, "sh", "-c", "trap '' TERM; sleep 1234", timeout=1)
    assert hung.ran[-1].timed_out
    assert podman.names() == []


@pytest.mark.slow
def test_what_a_killed_job_left_in_a_slot_is_gone_before_the_next(
    timeline: Timeline, podman: Podman, place: Workspace
) -> None:
    point = timeline.points[0]
    run(timeline, point, place, "true")
    argv = timeline.command(point, JobCommand(role="measure", argv=("sleep", "1234"))).argv
    words = {"@SLOT@": "0", "@OUT@": str(place.root), "@CORES@": ""}
    for name, value in words.items():
        argv = tuple(word.replace(name, value) for word in argv)
    client = subprocess.Popen(argv, env={**os.environ, "KARAT_OUT": "x"})
    while "karat-h1-0" not in podman.run("ps", "--format", "{{.Names}}").stdout:
        assert client.poll() is None
    client.send_signal(signal.SIGKILL)
    client.wait()
    assert podman.names() == ["karat-h1-0"]
    cleared, *_, measured = run(timeline, point, place, "true").ran
    assert (cleared.name, cleared.exit_code, measured.exit_code) == ("clear", 0, 0)
    assert podman.names() == []


@pytest.mark.slow
def test_what_setup_leaves_is_there_for_the_command_and_for_no_other_night(
    registry: Registry, podman: Podman, place: Workspace
) -> None:
    own = settings(registry)
    probe = ProbeSettings(command=("true",), setup=("touch", "/installed"))
    made = open_containers(msgspec.structs.replace(own, probe=probe), STAGE, None, place)

    def job(point: Point, *argv: str) -> JobResult:
        setup = JobCommand(role="prepare", name="setup", argv=argv)
        measure = JobCommand(role="measure", argv=("ls", "/installed"), env={"A": "b"}, timeout=30)
        wrapped = (made.command(point, setup), made.command(point, measure))
        commands = (*made.prepare(point), *wrapped)
        return run_job(Job(key="k", commands=commands), Slot(number=0, area=place.work), lambda: False)

    assert job(made.points[0], "touch", "/installed").ran[-1].exit_code == 0
    assert job(made.points[1], "true").ran[-1].exit_code == 1
    failed = job(made.points[0], "false").ran
    assert [(one.role, one.name, one.exit_code) for one in failed][-1] == ("prepare", "setup", 1)
    assert podman.names() == ["karat-h1-0"]
    made.close()
    assert podman.names() == []


def test_on_a_cluster_the_engine_need_not_be_here(
    registry: Registry, place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    own = settings(registry, engine="podman", ahead=2, cache="1 MB")
    own = msgspec.structs.replace(own, engine=EngineSettings(kind="ray"))
    made = open_containers(own, STAGE, None, place)
    made.ahead(made.points)
    names = [command.name for command in made.prepare(made.points[0])]
    made.close()
    assert names == ["clear", "pull"]
    with pytest.raises(CannotVerify, match="docker: not installed; podman: not installed"):
        open_containers(settings(registry), STAGE, None, place)


def test_suspects_are_the_commits_of_labels_and_the_image(timeline: Timeline) -> None:
    commit, image = timeline.suspects(timeline.points[0], timeline.points[1])
    assert (commit.part, commit.id, commit.title) == ("engine", f"{1:040x}", f"after {'0' * 12}")
    assert image.part == "image"
    assert "toy/nightly:2023-08-20 → " in image.title
    assert timeline.mixed(timeline.points[0], timeline.points[1], frozenset({"image"})) is None


@pytest.mark.slow
def test_an_image_whose_bytes_are_gone_is_not_a_crash_of_what_is_in_it(
    registry: Registry, podman: Podman, place: Workspace
) -> None:
    image = Image(bare=True, layers=(packed({"only": b"here"}),))
    registry.push("toy/holes", "2023-08-20", image)
    import gzip

    registry.delete_blob("toy/holes", digest_of(gzip.compress(image.layers[0], 1, mtime=0)))
    own = f"{registry.host}/toy/holes:{{date:%Y-%m-%d}}"
    made = open_containers(settings(registry, image=own, end=FIRST), STAGE, None, place)
    result = run(made, made.points[0], place, "true")
    assert [(one.role, one.name, one.exit_code) for one in result.ran][-1] == ("prepare", "pull", 125)
    made.close()
    assert podman.names() == []


@pytest.mark.slow
def test_images_that_come_next_are_pulled_in_the_background(
    registry: Registry, podman: Podman, place: Workspace
) -> None:
    for number in range(3):
        registry.push("toy/next", f"2023-08-2{number}", night(40 + number))
    own = f"{registry.host}/toy/next:{{date:%Y-%m-%d}}"
    end = FIRST + dt.timedelta(days=2)
    made = open_containers(settings(registry, image=own, end=end, ahead=2), STAGE, None, place)
    made.ahead(made.points)
    wanted = [point.parts["image"] for point in made.points]
    for image in wanted[:2]:
        while podman.run("image", "exists", image).returncode != 0:
            pass  # the test's own limit of time is what ends a wait in vain
    made.close()
    assert podman.run("image", "exists", wanted[2]).returncode != 0


@pytest.mark.slow
def test_the_oldest_images_of_the_hunt_make_room_and_no_others(
    registry: Registry, podman: Podman, place: Workspace
) -> None:
    for number in range(4):
        registry.push("toy/room", f"2023-08-2{number}", night(60 + number))
    own = f"{registry.host}/toy/room:{{date:%Y-%m-%d}}"
    end = FIRST + dt.timedelta(days=3)
    changed = settings(registry, image=own, end=end, cache="3 MB")
    made = open_containers(changed, STAGE, None, place)
    images = [point.parts["image"] for point in made.points]
    podman.run("pull", "--tls-verify=false", images[0])  # was here before the hunt
    for point in made.points:
        assert run(made, point, place, "true").ran[-1].exit_code == 0
    made.close()
    here = [podman.run("image", "exists", image).returncode == 0 for image in images]
    assert here == [True, False, True, True]


@pytest.mark.slow
def test_several_images_a_day_and_a_window_of_a_coarser_stage(
    registry: Registry, podman: Podman, place: Workspace
) -> None:
    for hour in (0, 6, 12):
        registry.push("toy/hourly", f"2023-08-20-{hour:02}", night(hour, labels=False))
    own = settings(registry, image=f"{registry.host}/toy/hourly:{{date:%Y-%m-%d-%H}}", start=None)
    old = Point(id="a", label="a", when=FIRST)
    new = Point(id="b", label="b", when=FIRST + dt.timedelta(hours=18))
    stage = Stage(timeline="containers", step=6 * 3600.0, text="containers by 6 hours")
    made = open_containers(own, stage, Window(old=old, new=new), place)
    assert [point.id for point in made.points if not point.missing] == [
        "2023-08-20T00:00",
        "2023-08-20T06:00",
        "2023-08-20T12:00",
    ]
    assert "commit.engine" not in made.identity(made.points[0])
    made.close()
    with pytest.raises(UsageError, match=r"containers\.start: expected a date"):
        open_containers(own, stage, None, place)
    assert podman.names() == []


@pytest.mark.slow
def test_nothing_there_is_a_mistake_and_nothing_known_is_none(
    registry: Registry, podman: Podman, place: Workspace
) -> None:
    nowhere = settings(registry, image=f"{registry.host}/toy/nobody:{{date:%Y-%m-%d}}")
    with pytest.raises(UsageError, match="expected images, found none of 6"):
        open_containers(nowhere, STAGE, None, place)
    mistaken = settings(registry, image=f"{registry.host}/toy/nightly:{{date:%Y.%m.%d}}")
    with pytest.raises(UsageError, match=r"; the repository has 5 tags, the last ones are 2023-08-20, .*2023-08-25"):
        open_containers(mistaken, STAGE, None, place)
    silent = settings(registry, image="127.0.0.1:9/toy/nightly:{date:%Y-%m-%d}")
    with pytest.raises(CannotVerify, match="expected an answer from http://127"):
        open_containers(silent, STAGE, None, place)
    gone = settings(registry, mounts=("gone:/dir",))
    with pytest.raises(UsageError, match=r"containers\.mounts: expected 'gone:/dir'"):
        open_containers(gone, STAGE, None, place)
    assert podman.names() == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"env": {"A-B": "c"}}, "the name of an environment variable, found 'A-B'"),
        ({"gpus": "some"}, r"containers\.gpus: expected 'all'"),
    ],
)
def test_what_no_job_could_do_is_said_before_the_first(
    registry: Registry, podman: Podman, place: Workspace, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        open_containers(settings(registry, **changed), STAGE, None, place)
    assert podman.names() == []


def test_a_folder_to_work_in_that_cannot_be_mounted_is_refused(
    registry: Registry, podman: Podman, place: Workspace
) -> None:
    odd = msgspec.structs.replace(place, work=place.root / "a:b")
    with pytest.raises(UsageError, match="without a colon"):
        open_containers(settings(registry), STAGE, None, odd)
    assert podman.names() == []


def test_a_finer_stage_that_the_template_cannot_tell_apart_is_refused_at_once(
    registry: Registry, podman: Podman, place: Workspace
) -> None:
    own = msgspec.structs.replace(settings(registry), stages=("containers by day", "containers by 6 hours"))
    with pytest.raises(UsageError, match="tells apart images 21600 s"):
        open_containers(own, STAGE, None, place)
    assert podman.names() == []


def test_a_refusal_says_how_to_log_in() -> None:
    with GuardedRegistry() as guarded:
        reference = parse(f"{guarded.host}/toy/nightly:here")
        engine = ContainerEngine(name="podman", program="podman")
        own = ContainerSettings(image="unused")
        asked = open_registry(own, [reference], engine)
        with pytest.raises(CannotVerify, match=r"any of the 1 images in the registry: .*without a login") as refused:
            list_images({"here": reference}, asked)
        asked.close()
    assert refused.value.next_command == f"podman login {guarded.host}"


def test_a_night_of_which_nothing_can_be_said_is_tried_by_its_tag() -> None:
    with GuardedRegistry(anonymous=True) as guarded:
        guarded.faults.add(Fault(pattern="/manifests/odd", status=403, times=None))
        names = ("here", "gone", "odd")
        references = {name: parse(f"{guarded.host}/toy/nightly:{name}") for name in names}
        asked = Asked(references["here"], None)
        listed = list_images(references, asked)
        asked.close()
    assert listed["here"].run == f"{guarded.host}/toy/nightly@{guarded.digest}"
    assert listed["gone"].run == ""
    assert listed["odd"].run == f"{guarded.host}/toy/nightly:odd"
    gone, odd = notes_on_images(listed.values())
    assert gone.startswith("1 of 3 images do not exist: ")
    assert odd.startswith("it is not known whether 1 of 3 images exist ")
    assert odd.endswith("they are tried anyway")


def test_slots_that_own_gpus_show_a_container_no_others(registry: Registry, podman: Podman, place: Workspace) -> None:
    changed = msgspec.structs.replace(settings(registry), engine=EngineSettings(gpus=1))
    made = open_containers(changed, STAGE, None, place)
    told = made.command(made.points[0], JobCommand(role="measure", argv=("true",)))
    made.close()
    assert told.env["CUDA_VISIBLE_DEVICES"] == "@GPUS@"
    assert "nvidia.com/gpu=all" in told.argv
    assert podman.names() == []


@pytest.mark.slow
def test_a_probe_has_the_cores_of_its_slot(timeline: Timeline, place: Workspace) -> None:
    point = timeline.points[0]
    own = JobCommand(role="measure", argv=("grep", "Cpus_allowed_list", "/proc/self/status"))
    job = Job(key="k", commands=(*timeline.prepare(point), timeline.command(point, own)))
    core = max(os.sched_getaffinity(0))
    result = run_job(job, Slot(number=0, area=place.work / "a", cores=(core,)), lambda: False)
    assert said(result).split()[-1] == str(core)


@pytest.mark.slow
def test_the_engine_is_not_imported_by_those_who_only_start(podman: Podman) -> None:
    words = "import sys, karat.cli; print('karat.hunts.timelines.containers' in sys.modules, 'httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]
    assert find_engine("podman").name == podman.program.rpartition("/")[2]
