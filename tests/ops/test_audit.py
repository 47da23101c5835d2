"""Audits of a small catalogue: a right operator, a wrong one, one that ends its process, one that hangs."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path

import msgspec
import pytest
from jsonschema import validate

from karat.findings import CannotVerify, UsageError
from karat.ops.audit import AuditedOperator, OpsReport, audit, judged, known_faults
from karat.ops.report import lines, render_html, totals
from karat.ops.worker import WorkerSetup
from karat.report.json import encode_report
from karat.schemas import schema

pytestmark = pytest.mark.slow

CATALOGUE = """
import os
import time
import numpy as np
from karat.ops.catalogue import Operator, Sample

def cube(x):
    return x**3

def right(inputs, outputs, cotangents):
    return (3 * inputs[0] ** 2 * cotangents[0],)

def wrong(inputs, outputs, cotangents):
    return (2 * inputs[0] ** 2 * cotangents[0],)

def dies(x):
    os._exit(7)

def hangs(x):
    time.sleep(1000)

def raises(x):
    raise ValueError("no such thing")

def operator(name, call, backward=right):
    def samples(seed):
        for n in range(3):
            yield Sample(
                call=call,
                inputs=(np.random.default_rng(seed + n).standard_normal(3),),
                source=f"from NAME import {call.__name__} as call, {backward.__name__} as backward",
                backward=backward,
                description=f"sample {n}",
            )
    return Operator(name=name, framework="numpy", samples=samples)

def operators():
    yield operator("right", cube)
    yield operator("wrong", cube, wrong)
    yield operator("dies", dies)
    yield operator("hangs", hangs)
    yield operator("raises", raises)
    yield Operator(name="none", framework="numpy", samples=lambda seed: (), skip="it has no derivative")
"""
TODAY = date(2026, 11, 16)


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"ops_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(CATALOGUE.replace("NAME", name), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return name


def audited(catalogue: str, *select: str, timeout: float = 60.0, journal: Path | None = None) -> OpsReport:
    setup = WorkerSetup(catalogue=catalogue, samples=2, level="quick")
    return audit(setup, select=select, jobs=2, timeout=timeout, journal=journal)


def told(report: OpsReport) -> list[tuple[str, str, str]]:
    return [(one.severity.value, one.kind, one.path) for one in report.findings]


def test_each_operator_costs_itself_alone(catalogue: str) -> None:
    found = judged(audited(catalogue, timeout=20), today=TODAY)
    by_name = {one.name: one for one in found.operators}
    assert by_name["right"].cells["reverse"] == "PASS"
    assert by_name["right"].checked == 2
    assert by_name["right"].samples == 3
    assert by_name["wrong"].cells["reverse"] == "FAIL"
    assert "exit status 7" in by_name["dies"].ended
    assert "longer than 20 s" in by_name["hangs"].ended
    assert "no such thing" in by_name["raises"].refused[0]
    assert found.skipped == {"none": "it has no derivative"}
    assert told(found)[:3] == [
        ("fail", "grad-failed", "wrong"),
        ("fail", "op-ended", "dies"),
        ("fail", "op-ended", "hangs"),
    ]
    assert ("warn", "not-audited", "raises") in told(found)
    assert "1 FAIL of 5 operators" in totals(found)
    (fault,) = by_name["wrong"].faults
    assert len(fault.script.splitlines()) <= 15
    assert "karat" not in fault.script
    ran = subprocess.run([sys.executable, "-c", fault.script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == fault.shown
    validate(json.loads(encode_report("karat.ops/1", found)), schema("karat.ops/1"))
    page = render_html(found, "karat ops audit <it>")
    assert "&lt;it&gt;" in page
    assert fault.script.splitlines()[0] in page
    shown = "\n".join("".join(text for text, _ in line) for line in lines(found))
    rows = [line.split()[:2] for line in shown.splitlines()]
    assert ["wrong", "FAIL"] in rows
    assert ["right", "PASS"] not in rows


def test_a_fault_that_no_script_shows_is_unverified(catalogue: str, tmp_path: Path) -> None:
    text = (tmp_path / f"{catalogue}.py").read_text(encoding="utf-8")
    (tmp_path / f"{catalogue}.py").write_text(text.replace("source=f", "source='' and f"), encoding="utf-8")
    found = judged(audited(catalogue, "wrong"), today=TODAY)
    assert found.operators[0].cells["reverse"] == "unverified"
    assert told(found) == [("warn", "fault-unverified", "wrong")]


def test_an_audit_goes_on_where_it_was_stopped(catalogue: str, tmp_path: Path) -> None:
    journal = tmp_path / "deep" / "journal.jsonl"
    first = audited(catalogue, "right", journal=journal)
    with journal.open("ab") as file:
        file.write(b'{"name": "wrong", "cel')  # what a killed one leaves
    second = audited(catalogue, "right", "wrong", journal=journal)
    assert second.operators[0] == first.operators[0]  # seconds, too: it was not run again
    assert [one.name for one in second.operators] == ["right", "wrong"]
    records = [json.loads(line) for line in journal.read_bytes().splitlines()]
    assert [one.get("name") for one in records] == [None, "right", "wrong"]
    setup = WorkerSetup(catalogue=catalogue, samples=1, level="quick")
    other = audit(setup, select=("right",), journal=journal)
    assert other.operators[0].checked == 1  # another audit's journal is not taken


def report_of(*wrong: str) -> OpsReport:
    """One with operators `a` and `b`, these wrong."""
    made = {
        "name": "a",
        "cells": {"reverse": "FAIL"},
        "faults": [{"column": "reverse", "sample": "0", "reason": "off", "shown": "wrong: 2 1"}],
        "checked": 1,
    }
    operators = [
        msgspec.convert(
            {**made, "name": name} if name in wrong else {"name": name, "cells": {}, "checked": 1}, AuditedOperator
        )
        for name in ("a", "b")
    ]
    words = {"catalogue": "m", "level": "quick", "versions": {}, "skipped": {}}
    numbers = {"seed": 0, "samples": 1, "checks": 2, "inconclusive_checks": 0, "seconds": 1.0}
    return msgspec.structs.replace(
        msgspec.convert({**words, **numbers, "operators": []}, OpsReport), operators=tuple(operators)
    )


def test_only_what_an_earlier_audit_did_not_have_fails() -> None:
    found = judged(report_of("a"), against=report_of("a", "b"), today=TODAY)
    assert told(found) == [("info", "exempted", "a"), ("info", "status-improved", "b")]
    found = judged(report_of("a", "b"), against=report_of("a"), today=TODAY)
    assert told(found) == [("fail", "grad-failed", "b"), ("info", "exempted", "a")]


def test_known_faults_pass_until_they_expire(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    entry = '[[known]]\nop = "{}"\nreason = "upstream 12"\nexpires = {}\n'
    path.write_text(entry.format("a*", "2026-11-16") + entry.format("b", "2027-01-01"), encoding="utf-8")
    found = judged(report_of("a"), known=known_faults(path), today=TODAY)
    assert told(found) == [("warn", "exemption-unused", "b"), ("info", "exempted", "a")]
    assert "upstream 12" in str(found.findings[1].message)
    assert (found.counts["FAIL"], found.counts["known"]) == (0, 1)
    late = judged(report_of("a"), known=known_faults(path)[:1], today=date(2026, 11, 17))
    assert told(late) == [("fail", "grad-failed", "a"), ("fail", "exemption-expired", "a")]


@pytest.mark.parametrize("text", ['[[known]]\nop = "a"\n', "[[known]]\nop = 3\n", "known", "[[known]]\nodd = 1\n"])
def test_a_list_of_known_faults_that_is_none_is_told(text: str, tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="expires"):
        known_faults(path)
    with pytest.raises(CannotVerify):
        known_faults(tmp_path / "nowhere.toml")


def test_nothing_that_matches_is_no_pass(catalogue: str) -> None:
    with pytest.raises(UsageError, match="found none among 6"):
        audited(catalogue, "nothing*")
    found = judged(audited(catalogue, "none"), today=TODAY)
    assert told(found) == [("fail", "nothing-compared", "")]
