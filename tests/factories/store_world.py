"""A folder to work in, with captures and a store: what the verbs of the store are tried in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

from factories.captured import capture, capture_many, identity
from factories.commands import Outcome, karat_here
from karat.schemas import schema


class World:
    """The folder; commands in it know its store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.captures = capture_many(root / "captures", 2)
        self.store = root / "the store"

    def run(self, *words: str, code: int = 0, cwd: Path | None = None, **environment: str) -> Outcome:
        known = {"KARAT_STORE": str(self.store), **environment}
        done = karat_here(*words, cwd=cwd or self.root, **known)
        assert done.code == code, (done.out, done.err)
        assert "Traceback" not in done.err
        if code in {1, 2, 3}:
            assert "\nnext: " in f"\n{done.err}", "every failure ends with the next command"
        return done

    def report(self, *words: str, code: int = 0) -> dict[str, Any]:
        """What --json says, held against its schema."""
        document: dict[str, Any] = json.loads(self.run(*words, "--json", "-", code=code).out)
        jsonschema.validate(document, schema(document["schema"]))
        assert document["exit_code"] == code
        return document

    def more(self, number: int = 0) -> None:
        """One more captured case."""
        capture(self.captures, identity(f"test_more[{number}]"))

    def objects(self) -> list[Path]:
        return sorted(path for path in (self.store / "expiring").rglob("*") if path.is_file())
