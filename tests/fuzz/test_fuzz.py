"""The fuzzer itself: its seeds are accepted, it finds what is wrong, and a short run finds nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz import __main__ as fuzzer
from fuzz.mutations import mutated, smaller
from fuzz.readers import READERS, Reader

SEED, SECONDS = 14, 8.0
# Another test of this process may have loaded jax, which warns of every fork; what is forked here has no use for it.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_every_seed_is_accepted(name: str, tmp_path: Path) -> None:
    """What is refused at the door shows nothing of what lies behind."""
    reader = READERS[name](tmp_path)
    assert reader.seeds
    for seed in reader.seeds:
        reader.read(seed)


@pytest.mark.slow
def test_a_short_run_over_all_readers_finds_nothing() -> None:
    turns = list(fuzzer.fuzz(list(READERS), SEED, SECONDS, workers=1))
    assert [(d.reader, d.number, d.what, d.data) for turn in turns for d in turn.defects] == []
    assert {turn.reader for turn in turns if turn.inputs} == READERS.keys()


def raises(data: bytes) -> None:
    if b"7" in data:
        raise IndexError("seven")


def hangs(data: bytes) -> None:
    while b"7" in data:
        pass


def fills(data: bytes) -> int:
    return len(bytes(2 << 30)) if b"7" in data else 0


def waits(data: bytes) -> None:
    if b"7" in data:
        time.sleep(60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "found"), [(raises, "IndexError"), (hangs, "processor"), (fills, "MemoryError"), (waits, "nothing")]
)
def test_what_is_wrong_is_found_and_can_be_repeated(
    read: Callable[[bytes], object], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(READERS, "planted", lambda _: Reader((b"1 2 3 4 5 6 7 8 9",), read))
    monkeypatch.setattr(fuzzer, "SECONDS", 0.5)
    monkeypatch.setattr(fuzzer, "WAITING", 1.0)
    defects = [defect for turn in fuzzer.fuzz(["planted"], SEED, 0.3, workers=1) for defect in turn.defects]
    assert [found in defect.what for defect in defects] == [True]
    again = fuzzer.input_of(READERS["planted"](Path()), SEED, "planted", defects[0].number)
    assert b"7" in again
    if found.endswith("Error"):
        assert defects[0].data == b"7", "the smallest input"


def test_an_input_is_a_function_of_its_seed() -> None:
    def inputs(seed: int) -> list[bytes]:
        return [mutated((b'{"a": [1, 2.5]}', b"x,y\n1,2\n"), random.Random(seed * 1000 + i)) for i in range(300)]

    assert inputs(1) == inputs(1)
    assert inputs(1) != inputs(2)
    assert len(set(inputs(1))) > 250


def test_smaller_keeps_only_what_matters() -> None:
    assert smaller(b"a" * 100 + b"7" + b"b" * 333 + b"8", lambda data: b"7" in data and b"8" in data) == b"78"
