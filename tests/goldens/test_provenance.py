from __future__ import annotations

import json

import pytest

from factories.repositories import Repository
from karat.findings import CannotVerify
from karat.goldens.provenance import (
    RECORD_SCHEMA,
    RefreshRecord,
    read_record,
    record_path,
)


def test_no_record_is_none(repository: Repository) -> None:
    assert read_record(repository.root) is None


def test_a_record_is_read_from_gits_private_files(repository: Repository) -> None:
    path = record_path(repository.root)
    path.parent.mkdir()
    path.write_text(
        json.dumps({"schema": RECORD_SCHEMA, "run_id": "7", "scope": "all"}), encoding="utf-8"
    )
    assert read_record(repository.root) == RefreshRecord(run_id="7", scope="all")
    assert ".git" in path.parts
    assert repository.git("status", "--porcelain") == ""


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "karat.refresh/9"}'])
def test_a_record_that_cannot_be_understood_is_said(repository: Repository, text: str) -> None:
    path = record_path(repository.root)
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CannotVerify, match="expected"):
        read_record(repository.root)
