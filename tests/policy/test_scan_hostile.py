"""Files of strangers that are scanned: what may be an import is looked at once, or left to the parser."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from factories.commands import karat_here
from karat.policy.scan.prefilter import Tangled, imported_modules

LINES = {
    "imports on one line": b"import a;",
    "a list in a list": b"import (a,",
    "from": b"from ",
    "continued": b"from \\\nimport \\\n",
    "spaces": b" ",
    "dots": b". ",
    "comments": b"#(import a\n",
    "names in names": b"import a" + b".a" * 5000 + b"\n",
}


@pytest.mark.parametrize("part", LINES.values(), ids=LINES)
def test_time_grows_with_the_file(part: bytes) -> None:
    def seconds(size: int) -> float:
        source = b"from a import (" + part * (size // len(part)) + b"import x"
        begin = time.process_time()
        with contextlib.suppress(Tangled):
            imported_modules(source)
        return time.process_time() - begin

    assert min(seconds(200_000) for _ in range(2)) < 1.5


def test_many_imports_on_one_line_are_left_to_the_parser() -> None:
    with pytest.raises(Tangled):
        imported_modules(b"import a;" * 50_000)


def test_one_name_of_many_parts_is_left_to_the_parser() -> None:
    with pytest.raises(Tangled):
        imported_modules(b"import a" + b".a" * 50_000)


@pytest.mark.slow
def test_a_file_of_such_names_is_scanned_in_a_moment(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_bytes(b"import op_test\nimport a" + b".a" * 50_000 + b"\n")
    begin = time.process_time()
    assert karat_here("policy", "scan", ".", cwd=tmp_path).code == 3
    assert time.process_time() - begin < 5


def test_what_is_imported_is_still_found() -> None:
    source = b"x = 1; from a . b import c\nyield_from = 1; import d\nfrom e \\\n  import f\nxfrom g import h\n"
    assert {"a", "a.b", "a.b.c", "d", "e", "e.f", "h"} <= imported_modules(source)
