from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from factories.captured import capture, identity
from karat.bundles.cases import Spool, cases
from karat.bundles.places import open_place
from karat.tensors.digests import digest_of
from karat.tensors.tensor import Damaged, TensorExtent

LARGE = 9 << 20
"""Two of these are more than a zip's members are unpacked to memory for."""


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A deflated zip whose expected file can only be read forward."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    a, b = (np.full(LARGE, n, np.uint8) for n in (1, 2))
    capture(tmp_path / "c", identity(), inputs=(1,), expected={"a": a, "b": b})
    with zipfile.ZipFile(tmp_path / "c.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((tmp_path / "c").rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(tmp_path / "c").as_posix())
    return tmp_path


def test_a_packed_file_is_unpacked_once_and_gone_afterwards(packed: Path) -> None:
    (case,) = cases(open_place(packed / "c.zip"))
    assert not case.tensor("expected/a").extent.seekable
    with Spool(case) as spool:
        for name in ("expected/b", "expected/a", "expected/b"):
            tensor = spool.verified(name)
            assert tensor.extent.seekable
            assert digest_of(tensor) == case.record(name).digest
        assert len(list((packed / "scratch").rglob("*"))) == 2  # a folder and one file in it
    assert list((packed / "scratch").iterdir()) == []


def test_what_can_be_read_anywhere_is_left_where_it_is(packed: Path) -> None:
    (case,) = cases(open_place(packed / "c"))
    with Spool(case) as spool:
        assert spool.tensor("expected/a") == case.tensor("expected/a")
        assert list((packed / "scratch").iterdir()) == []


def test_another_digest_is_damage(packed: Path) -> None:
    (file,) = (packed / "c").rglob("expected.safetensors")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    (case,) = cases(open_place(packed / "c"))
    with Spool(case) as spool:
        assert isinstance(spool.verified("expected/a"), TensorExtent)
        with pytest.raises(Damaged, match="expected/b: expected the digest"):
            spool.verified("expected/b")
