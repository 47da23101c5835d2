"""The lookup says the same as asking each, and does not ask each."""

from __future__ import annotations

from hypothesis import given, strategies as st

from karat.refreshes.identity import Lookup, clashes, in_common

NAMES = st.sampled_from(["case", "model", "run_id", "uuid", "attempt", "job_id", "shard"])
IDENTITIES = st.dictionaries(NAMES, st.sampled_from(["a", "A", "b", "1"]), max_size=4)


@given(st.lists(IDENTITIES, max_size=8), IDENTITIES)
def test_it_agrees_with_asking_each(known: list[dict[str, str]], asked: dict[str, str]) -> None:
    lookup = Lookup((identity, i) for i, identity in enumerate(known))
    expected = [
        i for i, one in enumerate(known) if in_common(asked, one) and not clashes(asked, one)
    ]
    assert list(lookup.agreeing(asked)) == expected


def test_among_thousands_only_the_near_ones_are_looked_at() -> None:
    looked: list[int] = []

    class Watched(dict[str, str]):
        def __and__(self, other: object) -> None: ...

        def keys(self):  # type: ignore[no-untyped-def]  # noqa: ANN202
            looked.append(1)
            return super().keys()

    lookup = Lookup((Watched(model="gpt", case=f"c{i}"), i) for i in range(2000))
    looked.clear()
    assert lookup.agreeing({"model": "gpt", "case": "C7"}) == (7,)
    assert len(looked) < 20
