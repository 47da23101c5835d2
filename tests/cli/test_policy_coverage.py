from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from factories.commands import karat
from factories.evidence import evidence, journal, op_test
from karat.schemas import schema

SCHEMA = schema("karat.policy-coverage/1")


@pytest.fixture
def where(tmp_path: Path) -> Path:
    """A folder with evidence for tanh and none for relu."""
    test = "t.py::TestRelu"
    records = [*op_test(evidence(), evidence(dtype="float32")), *op_test(op="relu", test=test)]
    journal(tmp_path / "evidence", records)
    return tmp_path


def report_of(where: Path, *words: str) -> Any:
    result = karat("policy", "coverage", "evidence", *words, "--json", "c.json", cwd=where)
    report = json.loads((where / "c.json").read_bytes())
    jsonschema.validate(report, SCHEMA)
    assert report["exit_code"] == result.code
    return report


def test_the_matrix(where: Path) -> None:
    result = karat("policy", "coverage", "evidence", cwd=where)
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "     cpu\n"
        "op   f64 f32\n"
        "relu  !   ·\n"
        "tanh  ●   ●\n"
        "\n"
        "● strong   ! missing   · not required   → forward mode   ² second order\n"
        "2 ops: 1 missing, 1 strong; 1 journal of 1 session\n"
    )


@pytest.mark.slow
def test_some_ops(where: Path) -> None:
    assert [op["op"] for op in report_of(where)["ops"]] == ["relu", "tanh"]
    assert [op["op"] for op in report_of(where, "--op", "t*")["ops"]] == ["tanh"]
    result = karat("policy", "coverage", "evidence", "--op", "conv*", cwd=where)
    assert (result.code, "--op conv*" in result.err) == (2, True)


def test_a_page(where: Path) -> None:
    result = karat("policy", "coverage", "evidence", "--html", "c.html", "--all", cwd=where)
    assert result.code == 0
    title = re.search("<title>(.*)</title>", (where / "c.html").read_text(encoding="utf-8"))
    assert title
    assert title[1] in result.out  # the answer, as the terminal gives it


def test_no_journal_is_3(tmp_path: Path) -> None:
    result = karat("policy", "coverage", "evidence", cwd=tmp_path)
    assert result.code == 3
    assert "next: pytest --karat-evidence=evidence" in result.err


def test_a_journal_of_no_op_is_3(tmp_path: Path) -> None:
    journal(tmp_path / "evidence", [])
    assert karat("policy", "coverage", "evidence", cwd=tmp_path).code == 3


def test_quiet_is_quiet(where: Path) -> None:
    result = karat("policy", "coverage", "evidence", "-q", "--html", "c.html", cwd=where)
    assert (result.code, result.out, result.err) == (0, "", "")
    assert (where / "c.html").exists()


def test_colours_are_for_those_who_ask(where: Path) -> None:
    assert "\x1b[" in karat("policy", "coverage", "evidence", cwd=where, FORCE_COLOR="1").out
