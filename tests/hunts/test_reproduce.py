from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from factories.repositories import Repository
from karat.hunts.model import Point
from karat.hunts.report.reproduce import reproduce_script
from karat.hunts.settings import NOT_KEPT, HuntSettings


def reproduce_command(*words: Any, **more: Any) -> str:
    """The script without its head."""
    return "\n".join(reproduce_script(*words, **more).split("\n")[3:]).strip()


def settings(**tables: Any) -> HuntSettings:
    probe = {"command": ["sh", "-c", "cat speed; echo at {value}"], **tables.pop("probe", {})}
    return msgspec.convert({"stages": ["values"], "probe": probe, **tables}, HuntSettings)


def pasted(line: str, folder: Path) -> str:
    """What the line prints when it is pasted into a shell in hunt.toml's folder."""
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_commit_is_cloned_built_and_probed(repository: Repository) -> None:
    repository.write("speed.in", "one\n")
    first = repository.commit()
    repository.write("speed.in", "two\n")
    repository.commit()
    made = settings(
        stages=["commits"], repositories=[{"name": "code", "url": "."}], commits={"build": ["cp", "speed.in", "speed"]}
    )
    point = Point(id="code@1", label="1", parts={"code": first})
    line = reproduce_command(made, "commits", point, {})
    assert pasted(line, repository.root) == "one\nat {value}\n"
    assert not (repository.root / "code").exists()


def test_several_repositories_lie_side_by_side(repository: Repository, tmp_path: Path) -> None:
    repository.write("speed", "one\n")
    first = repository.commit()
    other = Repository(tmp_path / "other")
    other.write("speed", "two\n")
    second = other.commit()
    repositories = [{"name": "code", "url": "."}, {"name": "more", "url": str(other.root)}]
    made = settings(
        stages=["commits"], probe={"command": ["cat", "code/speed", "more/speed"]}, repositories=repositories
    )
    point = Point(id="p", label="p", parts={"code": first, "more": second})
    assert pasted(reproduce_command(made, "commits", point, {}), repository.root) == "one\ntwo\n"


def test_a_script_beside_hunt_toml_is_found(repository: Repository) -> None:
    commit = repository.commit()
    repository.write("bench it.sh", "echo measured in $(git rev-parse HEAD)\n")
    made = settings(
        stages=["commits"], probe={"command": ["sh", "{root}/bench it.sh"]}, repositories=[{"name": "code", "url": "."}]
    )
    line = reproduce_command(made, "commits", Point(id="p", label="p", parts={"code": commit}), {})
    assert pasted(line, repository.root) == f"measured in {commit}\n"


def test_a_value_is_where_the_probe_looks_for_it(tmp_path: Path) -> None:
    made = settings(probe={"command": ["sh", "-c", 'echo "$KARAT_VALUE" and {value}']})
    value = "it's $HOME; `x`"
    point = Point(id="0", label="0", parts={"value": "x y"})
    assert pasted(reproduce_command(made, "values", point, {}), tmp_path) == "x y and x y\n"
    odd = reproduce_command(
        settings(probe={"command": ["printenv", "KARAT_VALUE"]}),
        "values",
        Point(id="1", label="1", parts={"value": value}),
        {},
    )
    assert pasted(odd, tmp_path) == f"{value}\n"


def test_an_image_is_named_by_what_was_really_run() -> None:
    made = settings(
        stages=["containers by day"],
        probe={"command": ["bash", "/dir/test.sh"], "env": {"XLA_FLAGS": "a b"}, "env_pass": ["HF_TOKEN"]},
        containers={
            "image": "r.example:5000/jax:n-{date:%F}",
            "engine": "podman",
            "mounts": [".:/dir", "/data:/data:ro"],
            "gpus": "all",
            "options": ["--shm-size=1g"],
        },
    )
    point = Point(id="d", label="d", parts={"image": "r.example:5000/jax:n-2023-08-24"})
    line = reproduce_command(made, "containers", point, {"image.digest": "sha256:abc"})
    assert shlex.split(line) == [
        "podman",
        "run",
        "--rm",
        "-v",
        "$PWD:/dir",
        "-v",
        "/data:/data:ro",
        "-e",
        "XLA_FLAGS=a b",
        "-e",
        "HF_TOKEN",
        "--device",
        "nvidia.com/gpu=all",
        "--shm-size=1g",
        "r.example:5000/jax@sha256:abc",
        "bash",
        "/dir/test.sh",
    ]
    assert "r.example:5000/jax:n-2023-08-24" in reproduce_command(made, "containers", point, {})


def test_the_engine_that_was_used_is_the_one_to_use() -> None:
    made = settings(
        stages=["containers by day"], containers={"image": "r.example/x:{date:%F}", "end": "2023-08-25T00:00:00Z"}
    )
    point = Point(id="d", label="d", parts={"image": "r.example/x:2023-08-24"})
    assert reproduce_command(made, "containers", point, {}, engine="podman").startswith("podman run ")
    assert reproduce_command(made, "containers", point, {}).startswith("docker run ")


def test_what_may_be_a_secret_is_not_in_the_line() -> None:
    env = {"HF_TOKEN": "hf_secret", "MODE": "fast", "FLAGS": NOT_KEPT}
    made = settings(probe={"command": ["true"], "env": env})
    line = reproduce_command(made, "values", Point(id="v", label="v", parts={"value": "1"}), {})
    assert "hf_secret" not in line
    assert 'HF_TOKEN="${HF_TOKEN:?}"' in line
    assert "MODE=fast" in line
    assert 'FLAGS="${FLAGS:?}"' in line


def test_a_package_is_installed_beside_what_it_needs() -> None:
    made = settings(stages=["packages"], packages={"name": "idna", "requires": ["numpy<2"], "python": "3.12"})
    line = reproduce_command(made, "packages", Point(id="3.4", label="3.4", parts={"idna": "3.4"}), {})
    assert line.startswith("uv run --no-project --isolated --python 3.12 --with idna==3.4 --with 'numpy<2' -- sh -c ")


IN_TWO = {
    "setup": ["sh", "-c", 'echo "$MODE" > "$0"/set', "{root}"],
    "command": ["sh", "-c", 'test -d "$KARAT_OUT" && cat "$0/se"t && echo "$MODE"', "{root}"],
    "env": {"MODE": "very fast"},
    "metrics": [{"name": "loss", "json": "loss", "file": "out.json"}],
}
"""A setup that the command needs, a variable that both have, and a folder for files."""


def test_setup_variables_and_the_folder_for_files_are_in_the_line(tmp_path: Path) -> None:
    point = Point(id="v", label="v", parts={"value": "1"})
    line = reproduce_command(settings(probe=IN_TWO), "values", point, {})
    assert pasted(line, tmp_path) == "very fast\nvery fast\n"


def test_they_are_so_for_a_commit_and_its_submodules(repository: Repository) -> None:
    commit = repository.commit()
    one = {"name": "code", "url": ".", "submodules": True}
    made = settings(stages=["commits"], probe=IN_TWO, repositories=[one])
    line = reproduce_command(made, "commits", Point(id="p", label="p", parts={"code": commit}), {})
    assert pasted(line, repository.root) == "very fast\nvery fast\n"
    assert "git -C code submodule -q update --init --recursive" in line


def _stand_in(folder: Path, name: str, script: str) -> str:
    """A program of that name first on the PATH of a line: what it does with its words is not what is asked here."""
    program = folder / "bin" / name
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return 'PATH="$PWD/bin:$PATH"; '


def test_they_are_so_for_a_package(tmp_path: Path) -> None:
    packages = {"name": "idna", "requires": ["dep==1.0"]}
    made = settings(stages=["packages"], probe=IN_TWO, packages=packages)
    point = Point(id="3.4", label="3.4", parts={"idna": "3.4"})
    line = reproduce_command(made, "packages", point, {})
    assert "--with idna==3.4 --with dep==1.0 --" in line
    uv = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
    assert pasted(_stand_in(tmp_path, "uv", uv) + line, tmp_path) == "very fast\nvery fast\n"


def test_a_variable_comes_before_uv_which_would_take_it_for_a_program(tmp_path: Path) -> None:
    probe = {"command": ["printenv", "MODE"], "env": {"MODE": "fast"}}
    made = settings(stages=["packages"], probe=probe, packages={"name": "idna"})
    line = reproduce_command(made, "packages", Point(id="3.4", label="3.4", parts={"idna": "3.4"}), {})
    uv = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
    assert pasted(_stand_in(tmp_path, "uv", uv) + line, tmp_path) == "fast\n"


def test_they_are_so_in_a_container(tmp_path: Path) -> None:
    made = settings(stages=["containers by day"], probe=IN_TWO, containers={"image": "r.example/jax:{date}"})
    point = Point(id="d", label="d", parts={"image": "r.example/jax:2023-08-24"})
    line = reproduce_command(made, "containers", point, {})
    # Variables, then the shell with its words, somewhere else.
    docker = """
while [ "$1" != r.example/jax:2023-08-24 ]; do
    case $1 in -e) export "$2" ;; -v) test -d "${2%:/karat-out}" && mounted=${2%:/karat-out} ;; --entrypoint) entry=$2 ;; esac
    shift
done
shift
test "$KARAT_OUT" = /karat-out && export KARAT_OUT="$mounted" && cd / && exec "$entry" "$@"
"""
    assert pasted(_stand_in(tmp_path, "docker", docker) + line, tmp_path) == "very fast\nvery fast\n"


@pytest.mark.parametrize("timeline", ["commits", "checkouts"])
def test_what_is_built_in_a_kept_container_is_shown_step_by_step(timeline: str) -> None:
    made = settings(
        stages=["commits"], repositories=[{"name": "code", "url": "."}], checkouts={"container": "last good"}
    )
    line = reproduce_command(made, timeline, Point(id="code@1 x", label="1", parts={"code": "1" * 40}), {})
    assert line == "", "the report has the command that shows every step"
