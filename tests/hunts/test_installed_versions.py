from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from karat.hunts.probe.jobs import print_versions


def installed(folder: Path, name: str, version: str) -> str:
    """A folder of the path that has a distribution."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return str(folder)


def test_of_two_of_one_name_it_is_the_one_that_is_imported(tmp_path: Path) -> None:
    first, second = installed(tmp_path / "1", "To.y", "2.0"), installed(tmp_path / "2", "to_y", "1.0")  # fmt: skip
    for path, version in (((first, second), "2.0"), ((second, first), "1.0")):
        done = subprocess.run(
            [sys.executable, "-S", *print_versions("to-y", "none")],
            env={"PYTHONPATH": os.pathsep.join(path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f"package.to-y={version}\npackage.none=not installed\n"
