"""`karat comment` as CI runs it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from factories.commands import karat_here
from factories.forge import Forge
from karat.schemas import schema

REPO = "octo/models"


@pytest.fixture
def forge() -> Iterator[Forge]:
    with Forge() as made:
        made.github.pull(REPO, 7, author="alice", head="1" * 40)
        yield made


def workflow(forge: Forge) -> dict[str, str]:
    return {
        "GITHUB_ACTIONS": "true",
        "GITHUB_API_URL": forge.github_url,
        "GITHUB_REF": "refs/pull/7/merge",
        "GITHUB_REPOSITORY": REPO,
        "GITHUB_TOKEN": forge.github.token,
    }


def test_in_a_workflow_it_knows_the_pull_request(forge: Forge, tmp_path: Path) -> None:
    (tmp_path / "body.md").write_text("the answer")
    done = karat_here("comment", "body.md", "--json", "-", cwd=tmp_path, **workflow(forge))
    assert done.code == 0, done.err
    report = json.loads(done.out)
    jsonschema.validate(report, schema("karat.comment/1"))
    assert report["action"] == "created"
    assert report["url"].endswith("/octo/models/pull/7#issuecomment-1")
    again = karat_here("comment", "body.md", cwd=tmp_path, **workflow(forge))
    assert again.out == f"unchanged {report['url']}\n"


def test_from_a_fork_the_text_goes_to_the_step_summary(forge: Forge, tmp_path: Path) -> None:
    forge.github.reads_only = True
    (tmp_path / "body.md").write_text("the answer")
    place = tmp_path / "summary.md"
    there = {**workflow(forge), "GITHUB_STEP_SUMMARY": str(place)}
    refused = karat_here("comment", "body.md", "--json", "-", cwd=tmp_path, **there)
    assert (refused.code, json.loads(refused.out)["exit_code"], place.exists()) == (3, 3, False)
    assert refused.err.endswith("next: export GITHUB_TOKEN=…  # with pull-requests: write\n")
    done = karat_here("comment", "body.md", "--or-summary", cwd=tmp_path, **there)
    assert (done.code, done.out, place.read_text()) == (0, "step-summary\n", "the answer")
    assert forge.github.token not in done.err + done.out + refused.err + refused.out


def test_without_a_request_it_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "body.md").write_text("x")
    done = karat_here("comment", "body.md", cwd=tmp_path, GITHUB_REPOSITORY="", GITHUB_REF="")
    assert (done.code, done.err) == (
        2,
        "karat: expected --pr or --merge-request, or a CI run for one, found none\nnext: karat comment --help\n",
    )
    gone = karat_here("comment", "gone.md", "--pr", "1", cwd=tmp_path)
    assert (gone.code, gone.err.splitlines()[-1]) == (3, "next: karat summary --format github -o gone.md")
