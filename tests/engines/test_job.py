from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from karat.engines.job import EngineSettings, open_engine
from karat.findings import UsageError


def test_without_ray_its_engine_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="needs Ray, which is not installed") as caught:
        open_engine(EngineSettings(kind="ray", slots=1), tmp_path)
    assert caught.value.next_command == "pip install 'karat[ray]'"


def test_neither_ray_nor_numpy_is_imported_for_a_local_engine() -> None:
    program = (
        "import sys\nfrom karat.engines import job, local, runner\n"
        "print(*({'ray', 'numpy', 'httpx', 'rich', 'sqlite3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "\n"
