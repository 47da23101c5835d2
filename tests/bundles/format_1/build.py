"""Made the zips beside this file, with the karat that wrote format 1:

    git worktree add /tmp/format_1 081dc998
    PYTHONPATH=/tmp/format_1/src python tests/bundles/format_1/build.py

`captured.zip` is what its `karat pack` made of one case with a program and the raw form, `store.zip` a folder store
that its `karat push` filled.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from karat.bundles import manifest
from karat.bundles.manifest import Comparator, Environment, Identity, case_path
from karat.bundles.write import NewCase, write_case

HERE = Path(__file__).parent


def main() -> None:
    assert manifest.SCHEMA == "karat.bundle/1", manifest.SCHEMA
    who = Identity(suite="models", flow="xnnpack", test="tests/test_models.py::test_doubled")
    x = np.arange(-4, 4, dtype=np.float32)
    with tempfile.TemporaryDirectory() as name:
        root, work = Path(name, "captured"), Path(name)
        folder = root / case_path(who)
        folder.mkdir(parents=True)
        case = NewCase(
            identity=who,
            inputs=(x,),
            expected={"doubled": x * 2},
            program=b"2",
            program_name="model.txt",
            comparator=Comparator(name="karat", rtol=1e-3, atol=1e-5),
            raw=True,
            environment=Environment(platform="linux", machine="x86_64", python="3.11.7"),
            session="session-1",
            created="2026-11-15T04:00:00Z",
        )
        write_case(folder, case)
        karat = [sys.executable, "-m", "karat"]
        subprocess.run([*karat, "pack", root, "--output", work / "packed"], check=True)
        subprocess.run(
            [*karat, "push", root, "models/nightly", "--store", work / "store", "--pin", "a test"], check=True
        )
        (HERE / "captured.zip").write_bytes(next((work / "packed").glob("*.zip")).read_bytes())
        with zipfile.ZipFile(HERE / "store.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted((work / "store").rglob("*")):
                archive.write(path, path.relative_to(work / "store").as_posix())


if __name__ == "__main__":
    main()
