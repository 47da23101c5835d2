"""GitHub's own OpenAPI description, and what it says about a request and its answer.

The description is fetched from npm (`@octokit/openapi`, 29 MB packed), never committed, and kept in
`build/`. It is OpenAPI 3.0: JSON Schema of draft 4, but for `nullable`, which is translated here.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft4Validator, FormatChecker

PACKAGE = "@octokit/openapi"
VERSION = "23.0.2"
MEMBER = "package/generated/api.github.com.json"
REFERENCE = "#/components/schemas/"

FORMATS = FormatChecker(formats=())


@FORMATS.checks("date-time", raises=ValueError)
def _is_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


@FORMATS.checks("uri")
def _is_uri(value: object) -> bool:
    return not isinstance(value, str) or bool(urlsplit(value).scheme)


class Unavailable(Exception):  # noqa: N818 - a state of this machine, not a bug
    """The description cannot be had here."""


def fetch(cache: Path) -> Path:
    """The description as a file under `cache`; several processes may ask at once."""
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / f"api.github.com-{VERSION}.json"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _download(cache, target)
    return target


def _download(cache: Path, target: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm (apt install npm)")
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--silent"]
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"{PACKAGE}@{VERSION} from npm") from error
        (packed,) = Path(folder).glob("*.tgz")
        unpacked = Path(folder) / "description.json"
        with tarfile.open(packed) as archive, unpacked.open("wb") as out:
            member = archive.extractfile(MEMBER)  # one member, under a name of ours
            assert member is not None
            shutil.copyfileobj(member, out)
        unpacked.replace(target)


class Description:
    """What GitHub promises."""

    def __init__(self, path: Path) -> None:
        self._whole: dict[str, Any] = json.loads(path.read_bytes())
        self._places: dict[str, re.Pattern[str]] = {
            template: re.compile(re.sub(r"\\{[^}]+\\}", "[^/]+", re.escape(template)))
            for template in self._whole["paths"]
            if template.startswith(("/repos/", "/orgs/", "/users/"))
        }

    @property
    def version(self) -> str:
        return str(self._whole["openapi"])

    def template(self, path: str) -> str:
        """The described path that a requested one is an instance of; the most literal, if several."""
        found: list[str] = [name for name, place in self._places.items() if place.fullmatch(path)]
        assert found, f"GitHub describes no {path}"
        return min(found, key=lambda name: name.count("{"))

    def faults_of_request(self, path: str, query: Mapping[str, str]) -> list[str]:
        """What in a query GitHub does not know: names, or values."""
        described = self._whole["paths"][self.template(path)]["get"]["parameters"]
        known = {one["name"]: one for one in map(self._resolved, described) if one["in"] == "query"}
        faults = [f"unknown parameter {name}" for name in query.keys() - known.keys()]
        for name in query.keys() & known.keys():
            schema = known[name]["schema"]
            whole = schema.get("type") == "integer" and query[name].isdecimal()
            value = int(query[name]) if whole else query[name]
            faults += [f"{name}: {e.message}" for e in self._validator(schema).iter_errors(value)]
        return faults

    def faults_of_answer(self, path: str, status: int, body: Any) -> list[str]:
        """Where a JSON body departs from what is described for that path and status."""
        responses = self._whole["paths"][self.template(path)]["get"]["responses"]
        assert str(status) in responses, f"GitHub describes no {status} of {path}"
        content = self._resolved(responses[str(status)])["content"]["application/json"]
        return self._faults(content["schema"], body)

    def faults_of_error(self, body: Any) -> list[str]:
        """For statuses that GitHub gives everywhere and describes nowhere."""
        return self._faults({"$ref": f"{REFERENCE}basic-error"}, body)

    def _faults(self, schema: Any, body: Any) -> list[str]:
        found = self._validator(schema).iter_errors(body)
        return [f"{error.json_path}: {error.message}" for error in found]

    def _resolved(self, described: Any) -> Any:
        while "$ref" in described:
            place: Any = self._whole
            for word in described["$ref"].removeprefix("#/").split("/"):
                place = place[word]
            described = place
        return described

    def _validator(self, schema: Any) -> Draft4Validator:
        """A schema with all it refers to."""
        needed: dict[str, Any] = {}
        waiting = set(_references(schema))
        while waiting:
            name = waiting.pop()
            needed[name] = self._whole["components"]["schemas"][name]
            waiting |= set(_references(needed[name])) - needed.keys()
        whole = {
            "allOf": [translated(schema)],
            "components": {"schemas": {name: translated(one) for name, one in needed.items()}},
        }
        return Draft4Validator(whole, format_checker=FORMATS)


def _references(schema: Any) -> Iterator[str]:
    """Names of the components that a schema refers to directly."""
    if isinstance(schema, list):
        for one in schema:
            yield from _references(one)
    elif isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix(REFERENCE)
        for key, value in schema.items():
            if key not in {"example", "examples", "default", "enum"}:
                yield from _references(value)


def translated(schema: Any) -> Any:
    """OpenAPI 3.0 as draft 4, and stricter: fields that are not described are faults, too."""
    if isinstance(schema, list):
        return [translated(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        key: value if key in {"example", "examples", "default", "enum", "required"} else translated(value)
        for key, value in schema.items()
        if key != "nullable" or not isinstance(value, bool)
    }
    combined = plain.keys() & {"allOf", "anyOf", "oneOf", "additionalProperties", "$ref"}
    if isinstance(plain.get("properties"), dict) and plain.get("type") == "object" and not combined:
        plain["additionalProperties"] = False
    return {"anyOf": [plain, {"type": "null"}]} if schema.get("nullable") is True else plain
