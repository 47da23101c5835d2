"""Files of strangers that are scanned: what may be an import is looked at once, or left to the parser."""

from __future__ import annotations

import contextlib
import time

import pytest

from karat.policy.scan.prefilter import Tangled, imported_modules

LINES = {
    "imports on one line": b"import a;",
    "a list in a list": b"import (a,",
    "from": b"from ",
    "continued": b"from \\\nimport \\\n",
    "spaces": b" ",
    "dots": b". ",
    "comments": b"#(import a\n",
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


def test_what_is_imported_is_still_found() -> None:
    source = b"x = 1; from a . b import c\nyield_from = 1; import d\nfrom e \\\n  import f\nxfrom g import h\n"
    assert {"a", "a.b", "a.b.c", "d", "e", "e.f", "h"} <= imported_modules(source)
