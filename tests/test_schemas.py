"""Schemas that are generated from structs, and the promise that each is one."""

from __future__ import annotations

import jsonschema
import msgspec
import pytest

from karat.schemas import PublishedSchema, names, schema, schema_of


class Part(msgspec.Struct, omit_defaults=True):
    """A part."""

    size: int
    pack: int | None = None


class Whole(msgspec.Struct):
    """Some parts."""

    schema: str = "karat.whole/1"
    parts: tuple[Part, ...] = ()
    more: str | None = None


ABOUT = PublishedSchema(name="karat.whole/1", title="t", description="d")


@pytest.mark.parametrize("name", names())
def test_every_published_schema_is_one_and_has_its_name(name: str) -> None:
    published = schema(name)
    jsonschema.Draft202012Validator.check_schema(published)
    assert published["$id"] == name
    assert published["title"]
    assert published["description"]


def test_what_is_always_written_is_required_and_nothing_else_is_allowed() -> None:
    made = schema_of(Whole, ABOUT)
    assert made["required"] == ["schema", "parts", "more"]
    assert made["properties"]["schema"] == {"const": "karat.whole/1"}
    assert made["additionalProperties"] is False
    assert made["$defs"]["Part"]["required"] == ["size"]
    jsonschema.validate({"schema": "karat.whole/1", "parts": [{"size": 1}], "more": None}, made)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": "karat.whole/1", "parts": [], "more": None, "x": 1}, made)


def test_limits_optional_fields_and_open_structs() -> None:
    about = msgspec.structs.replace(
        ABOUT,
        limits={"size": {"minimum": 0}, "Part.pack": {"minimum": 1}},
        optional=("Whole.more",),
        never_null=("Part.pack",),
        open=("Whole",),
    )
    made = schema_of(Whole, about)
    part = made["$defs"]["Part"]["properties"]
    assert part == {"size": {"type": "integer", "minimum": 0}, "pack": {"type": "integer", "minimum": 1}}
    assert made["required"] == ["schema", "parts"]
    assert "additionalProperties" not in made


def test_a_field_is_described_by_its_docstring() -> None:
    described = schema("karat.snapshot/1")["$defs"]["SnapshotFile"]["properties"]["name"]
    assert described["description"] == "Below the case's folder."
