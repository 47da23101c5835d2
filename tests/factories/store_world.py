"""A folder to work in, with captures and a store: what the verbs of the store are tried in."""

from __future__ import annotations

import contextlib
import io
import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from factories.captured import capture, capture_many, identity
from factories.commands import Outcome
from karat.cli import run


class World:
    """The folder; commands in it know its store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.captures = capture_many(root / "captures", 2)
        self.store = root / "the store"

    def run(
        self, *words: str, code: int = 0, cwd: Path | None = None, **environment: str
    ) -> Outcome:
        known = {"KARAT_STORE": str(self.store), **environment}
        done = _in_process(cwd or self.root, words, known)
        assert done.code == code, (done.out, done.err)
        assert "Traceback" not in done.err
        if code in {1, 2, 3}:
            assert "\nnext: " in f"\n{done.err}", "every failure ends with the next command"
        return done

    def report(self, *words: str, code: int = 0) -> dict[str, Any]:
        """What --json says, held against its schema."""
        document: dict[str, Any] = json.loads(self.run(*words, "--json", "-", code=code).out)
        name = document["schema"].replace("/", ".")
        text = resources.files("karat").joinpath("schemas", f"{name}.json").read_text()
        jsonschema.validate(document, json.loads(text))
        assert document["exit_code"] == code
        return document

    def more(self, number: int = 0) -> None:
        """One more captured case."""
        capture(self.captures, identity(f"test_more[{number}]"))

    def objects(self) -> list[Path]:
        return sorted(path for path in (self.store / "expiring").rglob("*") if path.is_file())


def _in_process(cwd: Path, words: tuple[str, ...], environment: dict[str, str]) -> Outcome:
    """The whole command line without the start of a process, which takes longest."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        for name in ("CI", "FORCE_COLOR", "GITHUB_RUN_ID"):
            patch.delenv(name, raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(list(words))
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return Outcome(code, *texts)
