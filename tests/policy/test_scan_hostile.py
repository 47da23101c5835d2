"""Files of strangers that are scanned: what may be an import is looked at once, or left to the parser."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from factories.commands import karat_here
from factories.ends import ends
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
def test_a_long_file_is_looked_through_to_its_end(part: bytes) -> None:
    source = b"from a import (" + part * (1_000_000 // len(part)) + b"import x"
    with ends(), contextlib.suppress(Tangled):
        imported_modules(source)


def test_many_imports_on_one_line_are_left_to_the_parser() -> None:
    with pytest.raises(Tangled):
        imported_modules(b"import a;" * 50_000)


def test_one_name_of_many_parts_is_left_to_the_parser() -> None:
    with pytest.raises(Tangled):
        imported_modules(b"import a" + b".a" * 50_000)


@pytest.mark.slow
def test_a_file_of_such_names_is_scanned(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_bytes(b"import op_test\nimport a" + b".a" * 50_000 + b"\n")
    with ends():
        assert karat_here("policy", "scan", ".", cwd=tmp_path).code == 3


def test_what_is_imported_is_still_found() -> None:
    source = b"x = 1; from a . b import c\nyield_from = 1; import d\nfrom e \\\n  import f\nxfrom g import h\n"
    assert {"a", "a.b", "a.b.c", "d", "e", "e.f", "h"} <= imported_modules(source)
