from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from factories.diffs import hostile, make
from factories.repositories import curves, golden_text
from karat import sample
from karat.compare.change import Verdict
from karat.diffs.diff import diff
from karat.diffs.report import data
from karat.diffs.result import Diff
from karat.findings import KINDS


def schema(name: str) -> Any:
    text = resources.files("karat").joinpath("schemas", f"{name}.json").read_text(encoding="utf-8")
    return json.loads(text)


def validated(result: Diff) -> Any:
    document = json.loads(data.render_json(result))
    jsonschema.Draft202012Validator(schema("karat.diff.1")).validate(document)
    return document


def demo(tmp_path: Path) -> Diff:
    for side, files in (("old", sample.before()), ("new", sample.after())):
        for name, text in files.items():
            path = tmp_path / side / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return diff(str(tmp_path / "old"), str(tmp_path / "new"))


def test_the_schema_is_a_schema() -> None:
    for name in ("karat.diff.1", "karat.config.1"):
        jsonschema.Draft202012Validator.check_schema(schema(name))


def test_output_fits_the_published_schema(tmp_path: Path) -> None:
    document = validated(demo(tmp_path))
    assert document["schema"] == "karat.diff/1"
    assert document["totals"]["files"] == len(document["files"]) == 15
    assert sum(document["totals"]["verdicts"].values()) == 15
    assert document["files"][0]["findings"][0]["kind"] == "truncated"


def test_every_kind_of_diff_fits(tmp_path: Path) -> None:
    for result in (make(), hostile(), Diff(old="a", new="b", changes=())):
        validated(result)
    assert demo(tmp_path).changes


def test_the_schema_notices_what_does_not_fit(tmp_path: Path) -> None:
    document = json.loads(data.render_json(demo(tmp_path)))
    document["files"][0]["verdict"] = "fine"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema("karat.diff.1")).validate(document)


def test_the_schema_knows_every_verdict() -> None:
    assert schema("karat.diff.1")["$defs"]["verdict"]["enum"] == [v.value for v in Verdict]


def test_findings_use_documented_kinds(tmp_path: Path) -> None:
    found = {f.kind for f in demo(tmp_path).all_findings()}
    assert found <= KINDS.keys()
    assert len(found) >= 6


def test_numbers_json_cannot_hold_become_null(tmp_path: Path) -> None:
    for side, value in (("old", "1e308"), ("new", "-1e308")):
        (tmp_path / side).mkdir()
        (tmp_path / side / "a.json").write_text(f'{{"x": {{"values": {{"1": {value}}}}}}}', encoding="utf-8")
    document = validated(diff(str(tmp_path / "old"), str(tmp_path / "new")))
    row = document["files"][0]["metrics"][0]
    assert row["avg_rel_diff"] is None
    assert row["verdict"] == "break"


def test_a_curve_of_another_seed_can_be_told_in_json(tmp_path: Path) -> None:
    for side, seed in (("old", 1), ("new", 2)):
        (tmp_path / side).mkdir()
        (tmp_path / side / "a.json").write_text(golden_text(curves(seed)), encoding="utf-8")
    document = validated(diff(str(tmp_path / "old"), str(tmp_path / "new")))
    told = {row["metric"]: row["explanation"] for row in document["files"][0]["metrics"]}
    assert told["num-zeros"]["kind"] == "seed"
