"""Documented regressions of released packages, found from the outside: the hunts of examples/hunts, on the real package index.

Usage: python benchmarks/hunt_history.py [NAME …] (needs a network; `make hunts`). Prints a table. Exit code 1 if an expected
change is missing, if one is found that is neither expected nor known to be true (`also`), or if a hunt took more runs than a
sweep of the same precision: every release once, and again as often as a hunt confirms its answers (`confirmations`, 2).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

HUNTS = Path(__file__).parents[1] / "examples" / "hunts"
CONFIRMATIONS = 2


def main(names: list[str]) -> int:
    wrong = 0
    print("| hunt | releases | runs | sweep | seconds | found | |\n|---|---:|---:|---:|---:|---|---|")
    for folder in sorted(HUNTS / name for name in names) or sorted(HUNTS.iterdir()):
        expected = tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as work:
            copy = shutil.copytree(folder, Path(work) / folder.name)
            argv = (sys.executable, "-m", "karat", "hunt", "run", "--quiet", "--json", "found.json")
            done = subprocess.run(argv, cwd=copy, capture_output=True, text=True, check=False)
            if done.returncode not in {0, 1}:
                raise SystemExit(f"{folder.name}: exit code {done.returncode}\n{done.stderr}")
            report = json.loads((copy / "found.json").read_bytes())
        found = [
            [culprit["metric"], culprit["change"]["old"]["id"], culprit["change"]["new"]["id"]]
            for culprit in report["culprits"]
        ]
        points = [one["point"] for one in report["stages"][0]["points"]]
        releases = sum(not point.get("missing") for point in points)
        sweep = releases * (1 + CONFIRMATIONS)
        true = [*expected["changes"], *expected.get("also", ())]
        all_found = all(change in found for change in expected["changes"]) and all(change in true for change in found)
        right = all_found and report["runs"] <= sweep
        wrong += not right
        told = "; ".join(f"{metric} {old} → {new}" for metric, old, new in found) or "nothing"
        cells = (folder.name, releases, report["runs"], sweep, f"{time.monotonic() - began:.0f}", told)
        print("|", " | ".join(map(str, cells)), "|", "as documented" if right else "WRONG", "|", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
