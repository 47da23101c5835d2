"""The split of docs/hunt-split.md on the real package index: numpy 2.0.0 among eight packages that moved, or an error.

Usage: python benchmarks/hunt_split.py (needs a network; `make soak-index`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "hunt_split"
WHO = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = shutil.copytree(EXAMPLE, Path(name) / "shop")

        def git(*words: str) -> None:
            subprocess.run(("git", *WHO, *words), cwd=folder, check=True)

        git("init", "--quiet")
        git("add", "labels.py", "check.py")
        git("commit", "--quiet", "--message", "Labels")
        git("tag", "v1")
        for number in range(1, 7):
            with (folder / "labels.py").open("a", encoding="utf-8") as file:
                file.write(f"# note {number}\n")
            git("commit", "--quiet", "--all", "--message", f"Note {number}")
        git("tag", "v2")
        sides = ("--code", "v1..v2", "--packages", "old.txt..new.txt")
        argv = (
            sys.executable,
            "-m",
            "karat",
            "hunt",
            "split",
            *sides,
            "--json",
            "found.json",
            "--",
            "python",
            "check.py",
        )
        done = subprocess.run(argv, check=False, cwd=folder)
        assert done.returncode == 1, "expected exit code 1: it fails"
        report = json.loads((folder / "found.json").read_bytes())
    found = [(one["part"], one["id"]) for culprit in report["culprits"] for one in culprit["suspects"]]
    assert found == [("numpy", "2.0.0")], f"expected numpy 2.0.0, found {found}"
    assert report["split"]["verdicts"] == {"crash": "environment"}, report["split"]
    print(f"numpy 2.0.0, as documented, with {report['runs']} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
