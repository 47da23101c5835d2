"""Container engines: one that answers is found, and its own failures are told from those of commands."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from factories.container_engines import Podman
from factories.registries import Image, Registry
from karat.findings import CannotVerify, UsageError
from karat.hunts.timelines.container_engine import ContainerEngine, engine_failure, env_options, find_engine, session

DOCKER = ContainerEngine(name="docker", program="docker")
PODMAN = ContainerEngine(name="podman", program="podman")
# One registry and one podman for all of these, in whichever process runs them.
pytestmark = pytest.mark.xdist_group("container_engine")


def _client(folder: Path, name: str, script: str) -> None:
    program = folder / name
    code = folder / f"{name}.py"
    code.write_text(script)
    # Not by `#!`: the path of the interpreter may have a space.
    words = shlex.join([sys.executable, str(code)])
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)


def test_a_client_without_a_server_is_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _client(tmp_path, "docker", "import sys; sys.exit('Cannot connect to the Docker daemon')")
    with pytest.raises(CannotVerify, match=r"docker: Cannot connect .*; podman: not installed"):
        find_engine()
    _client(tmp_path, "podman", "print('4.3.1')")
    assert find_engine() == ContainerEngine(name="podman", program="podman", version="4.3.1")
    with pytest.raises(CannotVerify, match="docker: Cannot connect") as refused:
        find_engine("docker")
    assert "podman" not in str(refused.value)
    assert refused.value.next_command == "docker version"


def test_docker_comes_first_where_both_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _client(tmp_path, "docker", "print('28.0')")
    _client(tmp_path, "podman", "print('4.3.1')")
    assert find_engine().name == "docker"
    assert find_engine("podman").name == "podman"
    with pytest.raises(UsageError, match="expected docker or podman"):
        find_engine("lxc")


def test_gpus_are_shown_as_each_engine_wants_it() -> None:
    assert DOCKER.gpus("all") == ("--gpus", "all")
    assert DOCKER.gpus("2") == ("--gpus", "2")
    assert DOCKER.gpus("device=0,1") == ("--gpus", '"device=0,1"')
    assert PODMAN.gpus("all") == ("--device", "nvidia.com/gpu=all")
    assert PODMAN.gpus("2") == ("--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1")
    assert PODMAN.gpus("device=3") == ("--device", "nvidia.com/gpu=3")
    assert DOCKER.gpus(None) == PODMAN.gpus(None) == ()
    for engine in (DOCKER, PODMAN):
        with pytest.raises(UsageError, match=r"containers\.gpus: expected"):
            engine.gpus("some, please")


def test_values_of_variables_stand_in_the_environment_and_not_on_the_command_line() -> None:
    options, env = env_options({"TOKEN": "ghp_PlantedInEnv", "PATH": "/opt/bin", "LD_PRELOAD": "x.so"})
    assert options == ("--env", "LD_PRELOAD=x.so", "--env", "PATH=/opt/bin", "--env", "TOKEN")
    assert env == {"TOKEN": "ghp_PlantedInEnv"}
    for name in ("http_proxy", "DOCKER_AUTH_CONFIG", "HF_TOKEN"):
        assert env_options({name: "ghp_PlantedInEnv"}) == (("--env", name), {name: "ghp_PlantedInEnv"})
    with pytest.raises(UsageError, match="name of an environment variable"):
        env_options({"A=B": "c"})


@pytest.mark.parametrize(
    ("code", "output", "own"),
    [
        (125, b"Error: statfs /gone: no such file or directory\n", True),
        (127, b'Error: runc: exec: "x": executable file not found in $PATH\n', True),
        (127, b"docker: Error response from daemon: unable to start\n\nRun 'docker run --help' for more", True),
        (127, b'docker: Error response from daemon: x: unknown.\ntime="2026" level=error msg="error waiting"\n', True),
        (125, b"value: 3\nError: no container with name or ID\n", True),
        (1, b"Error response from daemon: container 1f is not running\n", True),
        (255, b"Error: can only create exec sessions on running containers: container state improper\n", True),
        (127, b"sh: nosuch: not found\n", False),
        (125, b"nothing to test here\n", False),
        (1, b"Error: loss is nan\n", False),
        (255, b"Error: assertion failed\n", False),
        (0, b"Error: statfs\n", False),
        (None, b"Error: statfs\n", False),
        (125, b"", False),
        (125, b"Error: mine\nand so I cannot be tested\n", False),
    ],
)
def test_a_clients_own_failure_takes_its_words_and_its_exit_code(code: int | None, output: bytes, *, own: bool) -> None:
    assert bool(engine_failure(code, output)) == own


@pytest.fixture(scope="module")
def image(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> str:
    with Registry(tmp_path_factory.mktemp("registry")) as registry:
        registry.push("toy/one", "a", Image(labels={"who": "me"}))
        name = f"{registry.host}/toy/one:a"
        assert podman.run(*find_engine("podman").pull(name, insecure=True)[1:]).returncode == 0
    return name


def test_podman_knows_the_options_it_is_given_and_refuses_gpus_that_are_not_there(podman: Podman, image: str) -> None:
    options = (*PODMAN.named("one", "h"), *PODMAN.gpus("2"), *env_options({"A": "b", "PATH": "/bin"})[0])
    known = podman.run("run", "--help").stdout
    words = [word.partition("=")[0] for word in PODMAN.run(image, (), options) if word.startswith("--")]
    assert {"--device", "--env", "--label", "--name", "--replace", "--rm"} == set(words)
    assert [word for word in words if f"{word} " not in known] == []
    # No GPU of this machine is known to podman (CDI): that is no crash of what is in the image.
    done = podman.run(*PODMAN.run(image, ("true",), PODMAN.gpus("all"))[1:])
    assert engine_failure(done.returncode, done.stderr.encode())


@pytest.mark.slow
def test_podman_answers_and_knows_images(image: str) -> None:
    engine = find_engine("podman")
    assert engine.version
    found = engine.inspect(image)
    assert found is not None
    assert found["Config"]["Labels"] == {"who": "me"}
    assert engine.inspect("localhost/nobody:x") is None
    assert engine.image_sizes([image, "localhost/nobody:x"])[image] > 100_000


@pytest.mark.parametrize(
    ("options", "argv", "own"),
    [
        ((), ("nosuch",), True),
        ((), ("/bin",), True),
        (("--volume", "/nonexistent-folder:/x"), ("true",), True),
        ((), ("sh", "-c", "nosuch"), False),
        ((), ("sh", "-c", "exit 125"), False),
        ((), ("sh", "-c", "echo 'Error: mine'; exit 3"), False),
    ],
)
def test_podmans_own_failures_are_known(
    podman: Podman, image: str, options: tuple[str, ...], argv: tuple[str, ...], *, own: bool
) -> None:
    done = podman.run(*PODMAN.run(image, argv, options)[1:])
    assert done.returncode != 0
    assert bool(engine_failure(done.returncode, (done.stdout + done.stderr).encode())) == own


@pytest.mark.slow
def test_what_a_killed_process_left_behind_is_removed_and_no_more(podman: Podman, image: str) -> None:
    engine = find_engine("podman")
    mine = engine.named("x", "h")[-4:]
    earlier = tuple(word.replace(session(), "0ther") for word in mine)
    others = engine.named("x", "another")[-4:]
    for name, labels in (("mine", mine), ("earlier", earlier), ("others", others)):
        started = engine.run_detached(image, ("sleep", "infinity"), ("--name", name, *labels))
        assert podman.run(*started[1:]).returncode == 0
    engine.remove_leftovers("h")
    assert sorted(podman.names()) == ["mine", "others"]
    podman.run(*engine.remove("mine", "others")[1:])
    assert podman.names() == []


def test_the_environment_decides_where_karats_engine_keeps_images(podman: Podman) -> None:
    assert os.environ["CONTAINERS_STORAGE_CONF"] == podman.env["CONTAINERS_STORAGE_CONF"]
    assert str(podman.folder) in podman.run("info").stdout
