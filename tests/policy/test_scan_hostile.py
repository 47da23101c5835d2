"""Files of strangers that are scanned."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.commands import karat_here
from factories.ends import ends


@pytest.mark.slow
def test_a_file_of_long_names_is_scanned(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_bytes(b"import op_test\nimport a" + b".a" * 50_000 + b"\n")
    with ends():
        assert karat_here("policy", "scan", ".", cwd=tmp_path).code == 3
