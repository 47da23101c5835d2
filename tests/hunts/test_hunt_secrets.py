"""Hunts whose probe prints all it sees: what it is not given, and what is kept of it nowhere."""

from __future__ import annotations

import json
import sqlite3
import sys
import zlib
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from factories.hunt_files import place, settings, text
from factories.hunts import hunted, stepped, values_hunt
from karat.engines.job import JobCommand
from karat.findings import UsageError
from karat.hunts.driver import mark_stopped
from karat.hunts.hunt_toml import journal_path, read
from karat.hunts.journal import Journal, archive
from karat.hunts.probe.jobs import job_for
from karat.hunts.report import html, markdown
from karat.hunts.settings import (
    NOT_KEPT,
    ContainerSettings,
    PackageSettings,
    RepositorySettings,
    changed_settings,
    settings_json,
    stages,
)
from karat.hunts.timelines.container_engine import ContainerEngine, KeptContainer
from karat.hunts.timelines.git import Checkout
from karat.hunts.timelines.git_mirror import Mirror
from karat.hunts.timelines.packages import Environment
from karat.hunts.timelines.timeline import open_timeline

TOKEN, PASSED, PASSWORD = "ghp-0123456789abcdef", "hf-0123456789abcdef", "reg-0123456789abcdef"
FLAGS = "--xla_of_our_house"
ODD = 'a "quoted" text'


def everything(journal: Path) -> bytes:
    """All that a journal holds, logs in plain."""
    with closing(sqlite3.connect(journal)) as db:
        dump = "\n".join(db.iterdump()).encode()
        logs = b"".join(zlib.decompress(data) for (data,) in db.execute("SELECT data FROM logs"))
    assert b"speed" in logs
    return dump + logs


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hunt whose probe prints its environment, to its log and in an error."""
    for name, value in {"GITHUB_TOKEN": TOKEN, "HF_TOKEN": PASSED, "REGISTRY_PASSWORD": PASSWORD}.items():
        monkeypatch.setenv(name, value)
    file = values_hunt(
        tmp_path,
        stepped(3),
        f'[containers]\nimage = "r/x:{{date}}"\n'
        f'[probe.env]\nXLA_FLAGS = "{FLAGS}"\nOWN_PASSWORD = "hunter-2-hunter-2"\nODD = \'{ODD}\'\n',
    )
    script = tmp_path / "probe.sh"
    said = 'env > seen.txt; env; [ "$1" = v001 ] && { echo "ValueError: $HF_TOKEN $XLA_FLAGS" >&2; exit 1; }\n'
    said = f"{sys.executable} -c 'import json, os; print(json.dumps(dict(os.environ)))'\n{said}"
    script.write_text(said + script.read_text(encoding="utf-8"), encoding="utf-8")
    return file


def test_a_probe_does_not_see_secrets_and_what_it_sees_is_not_kept(printed: Path) -> None:
    whole = printed.read_text(encoding="utf-8").replace("timeout", 'env_pass = ["HF_TOKEN"]\ntimeout')
    printed.write_text(whole, encoding="utf-8")
    report = hunted(printed, strategy="sweep")
    seen = (printed.parent / "seen.txt").read_text(encoding="utf-8")
    assert PASSED in seen, "it was passed"
    assert FLAGS in seen
    assert "hunter-2-hunter-2" in seen, "hunt.toml sets it"
    assert TOKEN not in seen
    assert PASSWORD not in seen
    journal = journal_path(printed, read(printed))
    kept = everything(journal) + msgspec.json.encode(report)
    kept += f"{html.render(report)}{markdown.render(report)}".encode()
    for value in (TOKEN, PASSED, PASSWORD, FLAGS, "hunter-2-hunter-2", ODD, json.dumps(ODD)[1:-1]):
        assert value.encode() not in kept
    assert b"ValueError: *** $XLA_FLAGS" in kept


def test_a_journal_is_for_its_owner_alone(printed: Path) -> None:
    hunted(printed, strategy="sweep")
    path = journal_path(printed, read(printed))
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    path.chmod(0o644)  # as older versions left it
    with Journal.resume(path) as journal:
        journal.add_event("x")
        beside = [path.with_name(f"{path.name}{tail}") for tail in ("", "-wal", "-shm")]
        assert [oct(each.stat().st_mode & 0o777) for each in beside] == ["0o600"] * 3
    assert oct(archive(path).stat().st_mode & 0o777) == "0o600"


def test_why_a_hunt_stopped_is_kept_without_secrets(printed: Path) -> None:
    hunted(printed, strategy="sweep")
    path = journal_path(printed, read(printed))
    with Journal.resume(path) as journal:
        mark_stopped(journal, f"podman said: {TOKEN}")
    assert b"podman said: ***" in everything(path)
    assert TOKEN.encode() not in everything(path)


def test_secrets_on_command_lines_of_hunt_toml_are_not_kept() -> None:
    hunt = settings(
        'setup = ["env", "API_KEY=abcdef-012345", "MAX_TOKENS=4096", "x"]\n',
        '[options.moons]\napi_token = "abcdef-99999"\nplanet = "jupiter-and-its"\n',
        command='"env HF_TOKEN=abcdef-67890 python p.py --max_tokens=1024"',
    )
    kept = settings_json(hunt)
    assert "abcdef" not in kept
    for word in ("API_KEY=$API_KEY", "MAX_TOKENS=4096", "HF_TOKEN=$HF_TOKEN", "--max_tokens=1024", "jupiter-and-its"):
        assert word in kept
    assert msgspec.json.decode(kept)["options"]["moons"]["api_token"] == NOT_KEPT
    # A journal from before there was env_pass goes on.
    old = msgspec.json.decode(kept)
    del old["probe"]["env_pass"]
    assert changed_settings(msgspec.json.encode(old).decode(), kept) == ()


def test_env_pass_names_variables() -> None:
    assert settings('env_pass = ["HF_TOKEN"]\n').probe.env_pass == ("HF_TOKEN",)
    for wrong in ("A B", "AWS_*", "A=b", ""):
        with pytest.raises(UsageError, match=r"probe\.env_pass: expected the name of an environment variable"):
            settings(f'env_pass = ["{wrong}"]\n')
    assert "env_pass" in text('env_pass = ["X"]\n')


def test_a_job_says_what_is_passed(tmp_path: Path) -> None:
    hunt = settings('env_pass = ["HF_TOKEN"]\n')
    timeline = open_timeline(hunt, stages(hunt)[0], None, place(tmp_path))
    assert job_for(timeline, timeline.points[0], hunt, key="k", place=place(tmp_path)).passed == ("HF_TOKEN",)


def test_only_karats_own_logins_see_secrets(tmp_path: Path) -> None:
    mirror = Mirror(RepositorySettings(name="r", url="https://h/r.git", submodules=True), place(tmp_path))
    passed = {c.name: c.passed for c in Checkout(mirror=mirror).commands("0" * 40)}
    assert {name for name, those in passed.items() if those == ("*",)} == {"r: fetch", "r: submodules"}
    assert {name for name, those in passed.items() if those not in ((), ("*",))} == set()
    made = Environment(python="3", requirements=("x",)).commands(("uv",), {})
    assert {c.name: c.passed for c in made if c.passed} == {"install": ("UV_*", "PIP_*")}
    assert PackageSettings(name="x").name == "x"


def test_a_container_gets_what_is_passed_by_name() -> None:
    engine = ContainerEngine(name="podman", program="podman")
    kept = KeptContainer(engine=engine, image="i", name="n", env={"A": "1"}, passed=("HF_TOKEN",))
    inside = kept.inside(JobCommand(role="measure", argv=("x",)))
    assert " ".join(inside.argv).endswith("--env A --env HF_TOKEN n-" + kept.full_name[2:] + " x")
    assert inside.env == {"A": "1"}
    assert kept.start().passed == ("*",), "it may have to pull"
    assert ContainerSettings(image="i").env == {}
