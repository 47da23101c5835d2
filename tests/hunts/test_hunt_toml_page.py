from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from karat.hunts.hunt_toml import parse
from karat.hunts.settings import (
    CheckoutSettings,
    ContainerSettings,
    CrashSettings,
    EngineSettings,
    HuntSettings,
    MetricSettings,
    PackageSettings,
    ProbeSettings,
    RepositorySettings,
    SearchSettings,
    ValueSettings,
)

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "hunt-toml.md").read_text(encoding="utf-8")
SECTIONS: dict[str, type[msgspec.Struct]] = {
    "At the top": HuntSettings,
    "[probe]": ProbeSettings,
    "[[probe.metrics]]": MetricSettings,
    "[probe.crash]": CrashSettings,
    "[containers]": ContainerSettings,
    "[[repositories]]": RepositorySettings,
    "[checkouts], [commits]": CheckoutSettings,
    "[packages]": PackageSettings,
    "[values]": ValueSettings,
    "[search]": SearchSettings,
    "[engine]": EngineSettings,
}


@pytest.mark.parametrize("title", SECTIONS)
def test_every_key_has_its_row_and_no_other_has(title: str) -> None:
    section = re.split(r"^##+ ", PAGE.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)
    rows = re.findall(r"^\| `([a-z_]+)` \| (.+) \|$", section[0], re.MULTILINE)
    assert [key for key, _ in rows] == list(SECTIONS[title].__struct_fields__)


@pytest.mark.parametrize("page", sorted(DOCS.glob("hunt*.md")), ids=lambda path: path.stem)
def test_every_hunt_on_a_page_is_one(page: Path) -> None:
    blocks = re.findall(
        r"^```toml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    whole = [block for block in blocks if re.search(r"^stages\b", block, re.MULTILINE)]
    assert whole or page.stem != "hunt-toml"
    for block in whole:
        parse(block, Path("hunt.toml"))
