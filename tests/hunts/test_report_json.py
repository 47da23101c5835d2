from __future__ import annotations

import json

import jsonschema
import msgspec
import pytest

from factories.hunt_reports import nightly, nothing
from karat.hunts.model import HuntReport
from karat.schemas import schema


def published() -> dict[str, object]:
    return schema("karat.hunt/1")


@pytest.mark.parametrize("report", [nightly(), nothing()], ids=["nightly", "nothing"])
def test_a_report_is_valid_and_comes_back(report: HuntReport) -> None:
    data = report.to_json()
    jsonschema.Draft202012Validator(published()).validate(json.loads(data))
    assert msgspec.json.decode(data, type=HuntReport) == report
    assert json.loads(data)["schema"] == "karat.hunt/1"
    assert data.endswith(b"}\n")


def test_what_is_no_report_is_not_valid() -> None:
    validator = jsonschema.Draft202012Validator(published())
    broken = json.loads(nightly().to_json())
    del broken["stages"]
    assert not validator.is_valid(broken)
