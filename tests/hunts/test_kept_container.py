"""Kept containers, for real: they stay, their commands see the same folders, and a kill ends what runs inside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from factories.container_engines import Podman
from factories.registries import Image, Registry
from karat.engines.job import Job, JobCommand, JobResult
from karat.engines.runner import Slot, run_job
from karat.hunts.timelines.container_engine import ContainerEngine, KeptContainer, engine_failure, find_engine

# One registry and one podman for all of these, in whichever process runs them.
pytestmark = pytest.mark.xdist_group("kept_container")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with Registry(tmp_path_factory.mktemp("registry")) as made:
        made.push("toy/one", "a", Image())
        made.push("toy/one", "bare", Image(bare=True))
        yield made


@pytest.fixture
def kept(podman: Podman, registry: Registry) -> Iterator[KeptContainer]:
    made = KeptContainer(
        engine=find_engine("podman"),
        image=f"{registry.host}/toy/one:a",
        name="karat-test-@SLOT@",
        hunt="test",
        mounts=("@AREA@:@AREA@",),
        env={"KARAT_OUT": "@OUT@"},
    )
    yield made
    podman.run(*(word.replace("@SLOT@", "3") for word in made.engine.remove(made.full_name)[1:]))
    assert podman.names() == []


def _run(kept: KeptContainer, area: Path, *words: str, timeout: float = 30) -> JobResult:
    own = JobCommand(
        role="measure", argv=("sh", "-c", *words), cwd="@AREA@/deep er", env={"WORD": "a  b"}, timeout=timeout
    )
    (area / "deep er").mkdir(parents=True, exist_ok=True)
    job = Job(key="k", commands=(kept.start(), kept.inside(own)), collect=("*.txt",))
    return run_job(job, Slot(number=3, area=area), lambda: False)


@pytest.mark.slow
def test_a_container_sees_no_secret_unless_it_is_passed(
    kept: KeptContainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GITHUB_TOKEN", "HF_TOKEN"):
        monkeypatch.setenv(name, f"{name}-0123456789")
    passing = msgspec.structs.replace(kept, passed=("HF_TOKEN",))
    own = JobCommand(role="measure", argv=("sh", "-c", "env"))
    job = Job(key="k", commands=(passing.start(), passing.inside(own)), passed=passing.passed)
    output = run_job(job, Slot(number=3, area=tmp_path), lambda: False).ran[-1].output
    assert b"HF_TOKEN=***" in output
    assert b"GITHUB_TOKEN" not in output


@pytest.mark.slow
def test_the_second_command_finds_what_the_first_left_inside(
    kept: KeptContainer, podman: Podman, tmp_path: Path
) -> None:
    first = _run(kept, tmp_path, 'pwd; echo "$WORD"; touch /inside; echo 1 > "$KARAT_OUT/x.txt"')
    assert first.ran[1].output.decode().splitlines() == [f"{tmp_path}/deep er", "a  b"]
    assert first.files == {"x.txt": b"1\n"}
    assert not first.ran[0].skipped
    second = _run(kept, tmp_path, "ls /inside")
    assert second.ran[0].skipped
    assert second.ran[1].exit_code == 0
    assert podman.names() == [kept.full_name.replace("@SLOT@", "3")]


@pytest.mark.slow
def test_a_timeout_ends_what_runs_inside_and_keeps_its_files(
    kept: KeptContainer, podman: Podman, tmp_path: Path
) -> None:
    hung = _run(kept, tmp_path, "touch /inside; sleep 1234", timeout=1)
    assert hung.ran[1].timed_out
    after = _run(kept, tmp_path, "ls /inside; ps")
    assert b"/inside" in after.ran[1].output
    assert b"1234" not in after.ran[1].output
    assert "1234" not in podman.run("top", kept.full_name.replace("@SLOT@", "3")).stdout


@pytest.mark.slow
def test_a_container_that_was_stopped_is_started_again(kept: KeptContainer, podman: Podman, tmp_path: Path) -> None:
    _run(kept, tmp_path, "touch /inside")
    podman.run("kill", kept.full_name.replace("@SLOT@", "3"))
    assert _run(kept, tmp_path, "ls /inside").ran[1].exit_code == 0


@pytest.mark.slow
def test_another_image_is_never_the_old_container(kept: KeptContainer, registry: Registry, tmp_path: Path) -> None:
    bare = msgspec.structs.replace(kept, image=f"{registry.host}/toy/one:bare")
    assert bare.full_name != kept.full_name
    result = _run(bare, tmp_path, "true")
    # It has no sleep, so it cannot be kept, and that is the engine's failure, not a command's.
    assert len(result.ran) == 1
    assert engine_failure(result.ran[0].exit_code, result.ran[0].output)
    assert "sleep" in result.ran[0].output.decode()
    run_job(
        Job(key="k", commands=(JobCommand(role="prepare", argv=bare.engine.remove(bare.full_name)),)),
        Slot(number=3, area=tmp_path),
        lambda: False,
    )


@pytest.mark.slow
def test_a_check_whether_a_command_is_needed_is_made_inside(kept: KeptContainer, tmp_path: Path) -> None:
    once = JobCommand(role="build", argv=("touch", "/built"), unless=("ls", "/built"))
    job = Job(key="k", commands=(kept.start(), kept.inside(once), kept.inside(once)))
    ran = run_job(job, Slot(number=3, area=tmp_path), lambda: False).ran
    assert [one.skipped for one in ran] == [False, False, True]


def test_docker_is_told_the_same_without_what_only_podman_knows() -> None:
    kept = KeptContainer(
        engine=ContainerEngine(name="docker", program="docker"),
        image="ghcr.io/nvidia/jax:nightly-2023-08-24",
        name="karat-h-0",
        gpus="all",
    )
    argv = kept.start().argv
    assert argv[:3] == ("docker", "run", "--detach")
    assert "--replace" not in argv
    assert "--tls-verify=false" not in argv
    assert argv[argv.index("--gpus") + 1] == "all"
    assert argv[-2:] == ("ghcr.io/nvidia/jax:nightly-2023-08-24", "infinity")
    assert kept.engine.remove(kept.full_name) == ("docker", "rm", "--force", kept.full_name)
