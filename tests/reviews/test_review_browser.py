"""The page of a review in a real browser: a person decides, and git says what was decided."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from factories.captured import capture, identity
from factories.repositories import Repository, curves, golden_path, golden_text, moved
from factories.review_servers import served
from karat.reviews.server import ReviewServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("review")]
A, B, C, HOSTILE = (golden_path(case) for case in ("a", "b", "c", "<img src=x onerror=alert(1)>"))
TABLE = "benchmarks/dynamo/ci_expected_accuracy/inductor_training.csv"
DOCUMENT = "tests/functional_tests/test_cases/inference/x/golden_values_dev_dgx_h100.json"
Open = Callable[..., "Page"]


@pytest.fixture
def tree(repository: Repository) -> Repository:
    """Goldens of every shape that changed; one of them is of a run that died."""
    goldens = (A, B, HOSTILE)
    for n, path in enumerate((*goldens, C)):
        repository.write(path, golden_text(curves(n)))
    repository.write(TABLE, "name,accuracy,graph_breaks\nresnet,pass,0\nbert,pass,1\n")
    repository.write(DOCUMENT, json.dumps({"0": {"generated_text": "once", "tokens": [1, 2, 3]}}))
    weights = np.arange(600, dtype=np.float32).reshape(20, 30)
    capture(repository.root / "captured", identity(), expected={"logits": weights})
    repository.write("karat.toml", f'[goldens]\npaths = ["tests/**/golden_values_*.json", "{TABLE}"]\n')
    repository.commit()
    for n, path in enumerate(goldens):
        factors = {"lm loss": 1.01, "num-zeros": 1.2}
        repository.write(path, golden_text({k: moved(v, factors.get(k, 1.0)) for k, v in curves(n).items()}))
    repository.write(C, golden_text(curves(3), stop=13))
    repository.write(TABLE, "name,accuracy,graph_breaks\nresnet,pass,0\nbert,fail_accuracy,3\n")
    repository.write(DOCUMENT, json.dumps({"0": {"generated_text": "twice", "tokens": [1, 2, 4]}}))
    shutil.rmtree(repository.root / "captured")
    capture(repository.root / "captured", identity(), expected={"logits": weights * np.float32(1.01)})
    return repository


@pytest.fixture
def server(tree: Repository) -> Iterator[ReviewServer]:
    with served(tree.root) as made:
        yield made


@pytest.fixture
def visit(browser: Browser, server: ReviewServer) -> Iterator[Open]:
    """Opens the page in a tab of one browser; at the end, nobody else may have been asked, and nothing gone wrong."""
    trouble: list[str] = []
    asked: list[str] = []
    contexts: list[Any] = []

    def go(**options: Any) -> Page:
        if not contexts or options:
            contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options}))
        page: Page = contexts[-1].new_page()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: trouble.append(dialog.message))
        page.on("request", lambda request: asked.append(request.url))
        known = bool(contexts[-1].cookies())
        page.goto(f"http://{server.host}/" if known else server.address())
        page.locator(".item").first.wait_for()
        return page

    yield go
    for context in contexts:
        context.close()
    # A refusal is an answer, though a browser notes it down.
    assert [said for said in trouble if "status of 4" not in said] == []
    assert [url for url in asked if not url.startswith(f"http://{server.host}/")] == []


def select(page: Page, path: str) -> None:
    page.locator("#filter").fill(path)
    page.locator(".item").first.click()
    page.locator("#detail h2").get_by_text(path).wait_for()
    page.locator("#detail .metric, #detail h3, #detail .findings").first.wait_for()


def said(page: Page, words: str) -> None:
    page.locator("#said").get_by_text(words).wait_for()


def status(tree: Repository) -> dict[str, str]:
    """Golden → its two letters."""
    out = tree.git("-c", "core.quotePath=false", "status", "--porcelain", "-z").split("\0")
    return {line[3:]: line[:2] for line in out if line}


def test_filter_accept_reject_undo_and_reload(visit: Open, tree: Repository) -> None:
    page = visit()
    assert page.locator("#shown").inner_text() == "7 of 7, 7 to decide"
    assert page.title().startswith("7 of 7 goldens need a look")
    page.locator(".chip", has_text="incomplete").click()
    assert page.locator(".item").count() == 1
    page.locator(".chip", has_text="incomplete").click()
    select(page, "/a/")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Accept", exact=True).click()
    said(page, "Accepted, and staged")
    assert status(tree)[A] == "M "
    select(page, "/b/")
    page.get_by_role("button", name="Reject", exact=True).click()
    said(page, "Rejected, and put back")
    assert B not in status(tree)
    page.locator("#undo").click()
    said(page, "Undone, rejected before")
    assert status(tree)[B] == " M"
    page.reload()
    page.locator(".item").first.wait_for()
    assert page.locator("#shown").inner_text() == "7 of 7, 6 to decide"
    page.locator("#state").select_option("accepted")
    assert page.locator(".item .path").get_attribute("title") == A
    assert status(tree)[A] == "M "


@pytest.mark.slow
def test_no_number_of_a_long_one_is_cut(visit: Open, tree: Repository) -> None:
    tree.write(A, golden_text({"lm loss": curves(1)["lm loss"] / 3}))
    tree.commit()
    tree.write(A, golden_text({"lm loss": curves(1)["lm loss"] * (1 + 1.23e-7 * np.arange(50)) / 3}))
    page = visit()
    select(page, "/a/")
    table = page.locator(".steps")
    table.get_by_text("e-").first.wait_for()
    assert table.evaluate("e => e.scrollWidth <= e.clientWidth")


def test_one_metric_and_a_group(visit: Open, tree: Repository) -> None:
    page = visit()
    select(page, "/a/")
    page.locator(".metric", has_text="num-zeros").get_by_role("button", name="Accept num-zeros").click()
    said(page, "num-zeros of")
    assert status(tree)[A] == "MM"
    page.locator("#filter").fill("")
    select(page, "/b/")
    group = page.get_by_role("button", name="Accept group of")
    n = int(group.inner_text().split()[-1])
    assert n >= 2
    group.click()
    said(page, f"and {n - 1} more")
    assert sum(letters == "M " for letters in status(tree).values()) == n


def test_what_fails_needs_a_reason(visit: Open, tree: Repository) -> None:
    page = visit()
    select(page, "/c/")
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    page.locator("#reason[open]").wait_for()
    assert "truncated" in page.locator("#failing").inner_text()
    assert page.evaluate("document.activeElement.id") == "why"
    page.locator("#reason-accept").click()
    assert page.locator("#reason[open]").count() == 1, "an empty reason is none"
    page.locator("#reason-cancel").click()
    assert status(tree)[C] == " M"
    page.keyboard.press("a")
    page.locator("#why").fill("shorter on purpose")
    page.locator("#reason-accept").click()
    said(page, "Accepted")
    assert status(tree)[C] == "M "
    assert "shorter on purpose" in tree.git("show", ":tests/goldens.lock.json")


def test_a_second_tab_and_a_file_that_changed(visit: Open, tree: Repository) -> None:
    one, two = visit(), visit()
    select(one, "/a/")
    select(two, "/a/")
    one.keyboard.press("Escape")
    one.keyboard.press("a")
    said(one, "Accepted")
    two.keyboard.press("Escape")
    two.keyboard.press("r")
    said(two, "changed since it was shown")
    assert status(tree)[A] == "M "
    assert two.locator(".item .state").first.inner_text() == "accepted"
    select(one, "/b/")
    tree.write(B, golden_text({k: moved(v, 1.02 if k == "lm loss" else 1.0) for k, v in curves(1).items()}))
    one.keyboard.press("Escape")
    one.keyboard.press("a")
    said(one, "look at it again")
    assert status(tree)[B] == " M"
    one.keyboard.press("a")
    said(one, "Accepted")
    assert status(tree)[B] == "M "
    two.locator(".item .state").first.wait_for()
    two.evaluate("dispatchEvent(new Event('focus'))")
    said(two, "Something changed")


def test_a_curve_is_zoomed_and_the_table_follows(visit: Open) -> None:
    page = visit()
    select(page, "/a/")
    curve = page.locator(".metric[open] figure.curve").first
    curve.locator("canvas[data-drawn]").wait_for()
    assert curve.get_attribute("data-view") == "1…50"
    assert curve.locator("tbody tr").count() == 50
    curve.scroll_into_view_if_needed()
    box = curve.locator(".stage").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 80)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 90, steps=4)
    page.mouse.up()
    first, last = map(int, str(curve.get_attribute("data-view")).split("…"))
    assert 10 < first < last < 40
    assert curve.locator("tbody tr").count() == last - first + 1
    page.keyboard.press("Escape")
    page.keyboard.press("+")
    closer = str(curve.get_attribute("data-view")).split("…")
    assert int(closer[1]) - int(closer[0]) < last - first
    page.keyboard.press("ArrowRight")
    current = curve.locator("tr[aria-current]")
    assert f"step {current.locator('td').first.inner_text()} " in curve.locator(".read").inner_text()
    curve.locator("tbody tr").first.hover()
    assert current.locator("td").first.inner_text() == str(closer[0])
    page.keyboard.press("0")
    assert curve.get_attribute("data-view") == "1…50"


def test_tables_documents_and_tensors_show_what_changed(visit: Open) -> None:
    page = visit()
    select(page, TABLE)
    cells = page.locator("table.cells")
    assert cells.locator("tbody tr").count() == 1
    assert cells.locator("del").all_inner_texts() == ["pass", "1"]
    assert cells.locator("ins").all_inner_texts() == ["fail_accuracy", "3"]
    select(page, DOCUMENT)
    places = page.locator("table.places tr")
    assert [row.split("\t")[0] for row in places.all_inner_texts()] == ['$["0"].generated_text', '$["0"].tokens[2]']
    assert page.locator("table.places ins").all_inner_texts() == ['"twice"', "4"]
    select(page, "captured")
    tensor = page.locator(".metric", has_text="expected/logits")
    tensor.locator("canvas.histogram[data-drawn]").wait_for()
    tensor.locator("canvas.heat[data-drawn]").wait_for()
    worst = tensor.locator(".worst-elements tbody tr").first.locator("td").all_inner_texts()
    assert worst[:2] == ["[19, 29]", "599"]


def test_the_keyboard_alone_is_enough(visit: Open, tree: Repository) -> None:
    page = visit()
    page.keyboard.press("/")
    page.keyboard.type("golden_values")
    page.keyboard.press("Enter")
    before = page.locator("#detail h2").inner_text()
    page.keyboard.press("j")
    page.locator("#detail h2").filter(has_not_text=before).wait_for()
    page.keyboard.press("k")
    page.locator("#detail h2").get_by_text(before).wait_for()
    assert page.locator("#rows").get_attribute("aria-activedescendant") == "item-0"
    assert page.locator(".item[aria-selected=true]").count() == 1
    changed = status(tree)
    page.keyboard.press("r")
    said(page, "Rejected")
    assert len(status(tree)) == len(changed) - 1
    page.keyboard.press("u")
    said(page, "Undone")
    assert status(tree) == changed
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('#detail') && document.activeElement.textContent") == "Accept":
            break
    else:
        pytest.fail("Tab does not lead to the buttons")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_names_are_text_and_parts_have_names(visit: Open) -> None:
    page = visit()
    select(page, "onerror")
    assert page.locator("img").count() == 0
    assert HOSTILE in page.locator("#detail h2").inner_text()
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, input, select, textarea, canvas')].filter(e => !(e.textContent.trim()"
        " || e.getAttribute('aria-label') || (e.labels && e.labels.length))).map(e => e.outerHTML)"
    )
    assert nameless == []
    for name in ("Changed goldens", "The chosen golden"):
        assert page.get_by_role("region", name=name).count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_is_enough(visit: Open, tree: Repository, scheme: str) -> None:
    page = visit(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    wide = "document.documentElement.scrollWidth"
    assert page.evaluate(wide) == 390
    page.locator(".item", has=page.locator(f"[title='{A}']")).click()
    page.locator(".metric").first.wait_for()
    assert not page.locator("#list").is_visible()
    assert page.evaluate(wide) == 390
    page.get_by_role("button", name="Accept", exact=True).click()
    said(page, "Accepted")
    assert status(tree)[A] == "M "
    for other in (TABLE, DOCUMENT, "captured"):
        page.get_by_role("button", name="Back").click()
        assert page.locator("#list").is_visible()
        select(page, other)
        assert page.evaluate(wide) == 390
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(16, 19, 23)")


def test_without_the_token_there_is_nothing(browser: Browser, server: ReviewServer, tree: Repository) -> None:
    page = browser.new_page()
    for address in (f"http://{server.host}/", f"http://{server.host}/?token=wrong"):
        answer = page.goto(address)
        assert answer
        assert answer.status == 403
        assert "karat review --web" in page.locator("body").inner_text()
    # Another page of this machine, which knows the port and nothing else.
    page.goto(Path(tree.write("stranger.html", "<p>")).as_uri())
    sent = page.evaluate(
        "url => fetch(url, {method: 'POST', mode: 'no-cors', credentials: 'include', body: '{\"verb\": \"reject\"}'})"
        ".then(answer => answer.type, error => 'refused')",
        f"http://{server.host}/decide",
    )
    assert sent in {"opaque", "refused"}
    assert status(tree)[A] == " M"
    page.close()


def test_two_thousand_changes_without_a_pause(browser: Browser, repository: Repository) -> None:
    for n in range(2000):
        repository.write(golden_path(f"case_{n}"), golden_text({"lm loss": np.linspace(2, 1, 5)}))
    repository.commit()
    for n in range(2000):
        repository.write(golden_path(f"case_{n}"), golden_text({"lm loss": np.linspace(2, 1, 5) * (1.01 + n / 1e5)}))
    with served(repository.root) as server:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(server.address())
        page.locator(".item").first.wait_for()
        assert page.locator("#shown").inner_text() == "2,000 of 2,000, 2,000 to decide"
        assert page.locator(".item").count() < 60, "only the rows in view exist"
        page.locator("#rows").focus()
        page.keyboard.press("End")
        page.locator("#item-1999[aria-selected=true]").wait_for()
        page.locator("#filter").fill("case_1234")
        assert page.locator("#shown").inner_text().startswith("1 of 2,000")
        page.locator("#filter").fill("")
        page.locator("#rows").focus()
        page.keyboard.press("a")
        said(page, "Accepted")
        page.close()
    assert repository.git("diff", "--cached", "--name-only").count("\n") == 1
