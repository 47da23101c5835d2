"""The server of a review: who may ask, what it answers, and that a stale decision is none."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from factories.commands import karat_here
from factories.repositories import Repository, curves, golden_path, golden_text
from factories.review_servers import Client, served
from karat.goldens.formats import read
from karat.goldens.shapes import Table
from karat.reviews.details import cells, differences

A, B = golden_path("a"), golden_path("b")


@pytest.fixture
def tree(repository: Repository) -> Repository:
    """A golden that drifts, and one of a run that died."""
    for path in (A, B):
        repository.write(path, golden_text(curves(1)))
    repository.commit()
    repository.write(A, golden_text(curves(2)))
    repository.write(B, golden_text(curves(1), stop=13))
    return repository


@pytest.fixture
def client(tree: Repository) -> Iterator[Client]:
    with served(tree.root) as server:
        yield Client(server)


@pytest.fixture
def known(client: Client) -> Client:
    client.let_in()
    return client


def test_an_address_lets_in_once_and_only_who_has_it(client: Client) -> None:
    address = client.server.address().partition(client.server.host)[2]
    assert client.ask("GET", "/")[0] == 403
    assert client.ask("GET", "/?token=wrong")[0] == 403
    status, headers, _ = client.ask("GET", address)
    assert (status, headers["Location"]) == (303, "/")
    assert headers["Set-Cookie"].endswith("; HttpOnly; SameSite=Strict; Path=/")
    status, _, text = client.ask("GET", address, Accept="text/html")
    assert status == 403
    assert "used already" in text
    assert client.ask("GET", "/", Cookie=f"karat-review-{client.server.server_port}=guessed")[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "localhost"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"X_Karat_Token": ""},
        {"X_Karat_Token": "guessed"},
        {"Cookie": ""},
        {"Origin": ""},
        {"Content_Type": "text/plain"},
    ],
    ids=lambda headers: " ".join(f"{k}:{v}" for k, v in headers.items()),
)
def test_a_decision_of_a_stranger_is_none(known: Client, tree: Repository, headers: dict[str, str]) -> None:
    before = tree.git("status", "--porcelain")
    status, _, text = known.ask("POST", "/decide", {"verb": "reject", "paths": [A]}, **headers)
    assert status == 403
    assert json.loads(text)["error"]
    assert tree.git("status", "--porcelain") == before
    if headers.keys() & {"Host", "Cookie"} or "evil" in str(headers):
        assert known.ask("GET", "/", **headers)[0] == 403


def test_the_page_asks_nobody_else_and_may_not_be_framed(known: Client) -> None:
    _, headers, page = known.ask("GET", "/")
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] == "no-store"
    policy = page.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert policy.startswith("default-src 'none'; ")
    assert "connect-src 'self'" in policy
    assert "http" not in policy
    assert known.server.session not in page


def test_decisions_go_to_the_index_and_the_working_tree(known: Client, tree: Repository) -> None:
    status, answer = known.decide(verb="accept", paths=[A])
    assert (status, answer["items"][1][2]) == (200, "accepted")
    assert tree.git("status", "--porcelain") == f"M  {A}\n M {B}\n"
    assert known.decide(verb="reject", paths=[B])[0] == 200
    assert tree.git("status", "--porcelain") == f"M  {A}\n"
    known.decide(verb="undo")
    assert known.decide(verb="undo")[1]["said"].startswith("Undone, accepted before")
    assert tree.git("status", "--porcelain") == f" M {A}\n M {B}\n"
    assert "nothing to undo" in known.decide(verb="undo")[1]["said"]


def test_a_failing_golden_needs_a_reason(known: Client, tree: Repository) -> None:
    status, answer = known.decide(verb="accept", paths=[B])
    assert status == 422
    assert answer["failing"][0][:2] == ["truncated", B]
    assert tree.git("diff", "--cached", "--name-only") == ""
    assert known.decide(verb="accept", paths=[B], reason="the test is shorter now")[0] == 200
    assert "the test is shorter now" in tree.git("show", ":goldens.lock.json")


def test_a_decision_on_what_is_no_more_is_refused_and_the_list_is_new(known: Client, tree: Repository) -> None:
    _, _, text = known.ask("GET", "/state")
    seen = {path: mark for path, _, _, mark, *_ in json.loads(text)["items"]}
    tree.write(A, golden_text(curves(3)))
    status, answer = known.decide(verb="accept", paths=[A], seen=seen)
    assert status == 409
    assert "changed since it was shown" in answer["error"]
    assert {path: mark for path, _, _, mark, *_ in answer["items"]}[A] != seen[A]
    assert tree.git("diff", "--cached", "--name-only") == ""


def test_what_others_do_is_seen(known: Client, tree: Repository) -> None:
    version = json.loads(known.ask("GET", "/state")[2])["version"]
    assert json.loads(known.ask("GET", f"/state?version={version}")[2]) == {"version": version}
    tree.git("add", A)
    state = json.loads(known.ask("GET", f"/state?version={version}")[2])
    assert [it[2] for it in state["items"] if it[0] == A] == ["accepted"]


@pytest.mark.parametrize(
    "asked", [{}, {"verb": "delete"}, {"verb": "accept", "paths": ["/etc/passwd"]}, {"verb": "accept", "more": 1}]
)
def test_what_makes_no_sense_is_said(known: Client, asked: dict[str, Any]) -> None:
    status, answer = known.decide(**asked)
    assert status == 400
    assert answer["error"]
    for path in ("/golden", "/golden?path=%22/etc/passwd%22", "/golden?path=x"):
        assert known.ask("GET", path)[0] == 400
    assert known.ask("GET", "/other")[0] == 404


def test_a_golden_in_full_has_its_curves(known: Client) -> None:
    found = json.loads(known.ask("GET", f"/golden?path=%22{A}%22")[2])
    assert set(found["metrics"]) == {"lm loss", "num-zeros", "iteration-time"}
    assert len(found["curves"]) == 4
    assert found["rows"][0][found["fields"].index("curve")] == 0


def test_goldens_of_one_side_and_unreadable_ones_are_told_in_full(known: Client, tree: Repository) -> None:
    new = golden_path("new")
    tree.write(new, golden_text(curves(3)))
    tree.write(A, "<<<<<<< HEAD\n{}\n")
    (tree.root / B).unlink()
    known.decide(verb="refresh")
    curves_of = {}
    for path in (A, B, new):
        status, _, text = known.ask("GET", f"/golden?path=%22{path}%22")
        assert status == 200
        curves_of[path] = [[side == 0 for side in curve] for curve in json.loads(text)["curves"]]
    assert curves_of == {A: [[False, True]] * 4, B: [[False, True]] * 4, new: [[True, False]] * 4}


def _table(rows: str) -> Table:
    golden = read(f"name,accuracy,graph_breaks\n{rows}".encode(), "t.csv").golden
    assert isinstance(golden, Table)
    return golden


def test_changed_cells_are_told_with_both_sides() -> None:
    old = _table("a,pass,0\nb,pass,1\nc,pass,2\n")
    new = _table("a,pass,0\nb,fail_accuracy,1\nd,pass,0\n")
    found = cells(old, new)
    assert found["rows"] == [
        [("b",), ["pass", "1"], ["fail_accuracy", "1"]],
        [("c",), ["pass", "2"], None],
        [("d",), None, ["pass", "0"]],
    ]
    assert found["columns"] == ["accuracy", "graph_breaks"]


def test_differences_of_structure_have_a_path() -> None:
    old: dict[str, Any] = {"a": [1, 2, {"b": "x"}], "gone": True, "same": None}
    new: dict[str, Any] = {"a": [1, 3, {"b": "y"}, 4], "same": None, "new key": {}}
    assert list(differences(old, new)) == [
        ["$.a[1]", "2", "3"],
        ["$.a[2].b", '"x"', '"y"'],
        ["$.a[3]", None, "4"],
        ["$.gone", "true", None],
        ['$["new key"]', None, "{}"],
    ]


def test_the_command_prints_the_address_and_ends_with_what_is_left(tree: Repository) -> None:
    words = [sys.executable, "-m", "karat", "review", "--web"]
    with subprocess.Popen(words, cwd=tree.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout
        address = running.stdout.readline()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{40,}\n", address)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 1, "the run that died is not decided"
    assert "Ctrl-C ends the review" in said
    both = karat_here("review", "--web", "--json", "-", cwd=tree.root)
    assert both.code == 2


def test_what_needs_no_look_says_which_metric_moved(repository: Repository) -> None:
    loss = curves(1)["lm loss"]
    repository.write(A, golden_text({"held": loss, "lm loss": loss}))
    repository.commit()
    repository.write(A, golden_text({"held": loss, "lm loss": loss + np.linspace(0, 1e-5, len(loss)) ** 2}))
    with served(repository.root) as server:
        client = Client(server)
        client.let_in()
        (item,) = json.loads(client.ask("GET", "/state")[2])["items"]
    assert item[5].startswith("lm loss: |avg| ")
