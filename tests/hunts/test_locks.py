from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from factories.container_engines import Podman
from factories.registries import Image, Registry
from karat.findings import CannotVerify, UsageError
from karat.hunts.timelines.locks import read_side, read_sides, requirement

# What stands in for Python in an image of busybox; what the real pip answers to these words is tested below.
PYTHON = """#!/bin/sh
[ "$*" = "-m pip list --format=freeze --disable-pip-version-check" ] && cat /pins
"""

FREEZE = """
# by pip freeze
NumPy==1.26.4
--index-url https://example.com/simple
six==1.16.0 ; python_version >= "3"
colorama==0.4.6 ; sys_platform == "win32"
attrs==23.1.0 \\
    --hash=sha256:abc \\
    --hash=sha256:def
tool @ git+https://example.com/tool@0123abc
-e git+https://example.com/app@0123abc#egg=app
"""
UV = """
version = 1

[[package]]
name = "app"
version = "0.1.0"
source = { editable = "." }
dependencies = [
    { name = "numpy" },
    { name = "colorama", marker = "sys_platform == 'win32'" },
]
[package.dev-dependencies]
dev = [{ name = "pytest" }]

[[package]]
name = "numpy"
version = "1.26.4"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "colorama"
version = "0.4.6"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "pytest"
version = "8.0.0"
source = { registry = "https://pypi.org/simple" }
dependencies = [{ name = "tool" }]

[[package]]
name = "tool"
version = "1.0"
source = { git = "https://example.com/tool?rev=main#0123abc" }
"""
PYLOCK = """
lock-version = "1.0"
created-by = "uv"

[[packages]]
name = "numpy"
version = "1.26.4"

[[packages]]
name = "colorama"
version = "0.4.6"
marker = "sys_platform == 'win32'"
"""


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return name


def test_pins_of_pip_with_markers_hashes_and_addresses(tmp_path: Path) -> None:
    found = read_side(written(tmp_path, "old.txt", FREEZE), tmp_path)
    tool = "@ git+https://example.com/tool@0123abc"
    assert found == {"numpy": "1.26.4", "six": "1.16.0", "attrs": "23.1.0", "tool": tool}
    assert [requirement(*pin) for pin in found.items()][2:] == ["attrs==23.1.0", f"tool {tool}"]


def test_a_file_that_names_another(tmp_path: Path) -> None:
    written(tmp_path, "more/base.txt", "six==1.16.0\n")
    assert read_side(written(tmp_path, "old.txt", "-r more/base.txt\nnumpy==2.0.0\n"), tmp_path) == {
        "six": "1.16.0",
        "numpy": "2.0.0",
    }


def test_uv_lock_is_what_the_project_needs_here_without_itself(tmp_path: Path) -> None:
    found = read_side(written(tmp_path, "uv.lock", UV), tmp_path)
    assert found == {"numpy": "1.26.4", "pytest": "8.0.0", "tool": "@ git+https://example.com/tool@0123abc"}


def test_pylock(tmp_path: Path) -> None:
    assert read_side(written(tmp_path, "pylock.toml", PYLOCK), tmp_path) == {"numpy": "1.26.4"}


@pytest.mark.parametrize("text", ["old.txt..new.txt", "../here/old.txt..../here/new.txt"])
def test_two_files(text: str, tmp_path: Path) -> None:
    here = tmp_path / "here"
    written(here, "old.txt", "six==1.16.0\n")
    written(here, "new.txt", "six==1.17.0\n")
    assert read_sides(text, here) == ({"six": "1.16.0"}, {"six": "1.17.0"})


def test_pins_on_the_command_line(tmp_path: Path) -> None:
    old, new = read_sides("six==1.16.0, Numpy==1.26.4..six==1.17.0", tmp_path)
    assert (old, new) == ({"six": "1.16.0", "numpy": "1.26.4"}, {"six": "1.17.0"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("numpy>=1.20\n", "expected name==version, found 'numpy>=1.20'"),
        ("numpy==1.26.*\n", "expected name==version, found 'numpy==1.26.*'"),
        ("numpy is nice\n", "expected a lock file, image:NAME, or pins"),
        ("-r old.txt\n", "expected a lock file, image:NAME, or pins"),
        ("# nothing\n", "expected packages in"),
    ],
)
def test_what_is_no_pin(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        read_side(written(tmp_path, "old.txt", text), tmp_path)


def test_what_is_no_lock_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"expected a lock file, .* in .*uv.lock, found: 'source'"):
        read_side(written(tmp_path, "uv.lock", '\n[[package]]\nname = "x"\n'), tmp_path)
    written(tmp_path, "old.txt", "six==1.16.0\n")
    with pytest.raises(UsageError, match=r"expected OLD\.\.NEW.*no such file: gone.txt"):
        read_sides("old.txt..gone.txt", tmp_path)
    with pytest.raises(UsageError, match=r"expected OLD\.\.NEW"):
        read_sides("old.txt", tmp_path)


def _with_python(pins: str) -> Image:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, text, mode in (("bin/python3", PYTHON, 0o755), ("pins", pins, 0o644)):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), mode
            tar.addfile(member, io.BytesIO(text.encode()))
    return Image(layers=(content.getvalue(),))


@pytest.mark.slow
@pytest.mark.xdist_group("container_engine")
def test_images_are_asked_for_their_packages(tmp_path: Path, podman: Podman) -> None:
    names = []
    with Registry(tmp_path / "registry") as registry:
        for tag, image in (
            ("a", _with_python("numpy==1.26.4\nsix==1.16.0\n")),
            ("b", _with_python("numpy==2.0.0\n")),
            ("c", Image()),
        ):
            registry.push("team/app", tag, image)
            names.append(f"{registry.host}/team/app:{tag}")
            assert podman.run("pull", "--quiet", "--tls-verify=false", names[-1]).returncode == 0
    old, new, bare = (f"image:{name}" for name in names)
    assert read_sides(f"{old}..{new}", tmp_path) == ({"numpy": "1.26.4", "six": "1.16.0"}, {"numpy": "2.0.0"})
    with pytest.raises(CannotVerify, match=r"team/app:c to list its packages, but: .*python3"):
        read_sides(f"{old}..{bare}", tmp_path)
    with pytest.raises(UsageError, match="expected an image such as") as refused:
        read_side("image:--privileged", tmp_path)
    assert refused.value.next_command == "karat hunt split --help"


def test_what_pip_lists_are_pins(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"]
    listed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found = read_side(written(tmp_path, "installed.txt", listed), tmp_path)
    assert {"numpy", "msgspec", "karat"} <= found.keys()
    assert not any(version.startswith("@") for version in found.values())
