"""What goes into which object, and that it depends on the files alone."""

from __future__ import annotations

import random

import msgspec
import pytest
from blake3 import blake3
from hypothesis import given, settings, strategies as st

from factories.stores import case, cases, contents, made
from karat.store.objects import name_of
from karat.store.snapshot import CHUNK, encode, pieces
from karat.store.upload import SMALL, UploadPlan, plan_upload

names = st.sampled_from(["manifest.json", "inputs.safetensors", "program/a", "program/b", "raw/x"])
some_cases = st.dictionaries(
    st.sampled_from([f"s/f/c{i}" for i in range(12)]),
    st.dictionaries(names, st.binary(max_size=40), min_size=1),
    min_size=1,
)


def assembled(made_plan: UploadPlan) -> dict[str, bytes]:
    """The files again, from the objects and the snapshot alone."""
    wanted = set(made_plan.parts())
    objects = {part.digest: bytes(data) for unit in made_plan.units for part, data in unit.objects(wanted)}
    assert all(name_of(data, digest) == digest for digest, data in objects.items())
    found = {}
    for path, file in made_plan.snapshot.files():
        if file.pack is not None:
            pack = objects[made_plan.snapshot.packs[file.pack].digest]
            data = pack[file.offset : file.offset + file.stored]
            assert name_of(data, file.digest) == file.digest
        else:
            data = b"".join(objects[part.digest] for part in pieces(file))
        found[path] = data + made_plan.snapshot.tail_of(file)
        assert len(found[path]) == file.size
    return found


@pytest.mark.slow
@given(some_cases, st.randoms())
def test_objects_and_snapshot_hold_every_byte_whatever_the_order(
    tree: dict[str, dict[str, bytes]], dice: random.Random
) -> None:
    some = [made(path, files) for path, files in tree.items()]
    first = plan_upload(some, 3)
    assert assembled(first) == contents(some)
    dice.shuffle(some)
    again = plan_upload([made(one.path, dict(reversed(_bytes(one).items()))) for one in some], 1)
    assert (again.digest, again.data) == (first.digest, first.data)
    assert first.snapshot.size == sum(map(len, contents(some).values()))


def _bytes(one: object) -> dict[str, bytes]:
    prefix = len(getattr(one, "path")) + 1  # noqa: B009 - its type is of no interest here
    return {path[prefix:]: data for path, data in contents([one]).items()}  # type: ignore[list-item]


@settings(max_examples=30)
@given(st.integers(1, 200), st.integers(1, 64), st.integers(0, 5))
def test_large_files_are_cut(size: int, chunk: int, seed: int) -> None:
    data = random.Random(seed).randbytes(size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("karat.store.upload.CHUNK", chunk)
        patch.setattr("karat.store.upload.SMALL", 0)
        made_plan = plan_upload([made("s/f/c", {"program/p": data})], 1)
    assert assembled(made_plan) == {"s/f/c/program/p": data}
    assert all(part.size <= chunk for part in made_plan.parts().values())
    assert len(made_plan.units[0].parts) == -(-size // chunk)


@pytest.mark.slow
def test_a_file_over_64_mib_is_two_objects() -> None:
    data = bytes(CHUNK) + b"tail"
    made_plan = plan_upload([made("s/f/c", {"program/p": data})], 2)
    (file,) = made_plan.snapshot.cases[0].files
    assert [part.size for part in file.chunks] == [CHUNK, 4]
    assert file.digest == ""
    assert file.chunks[1].digest == f"blake3:{blake3(b'tail').hexdigest()}"


@pytest.mark.slow
def test_a_changed_case_changes_its_own_objects_and_its_run_of_manifests() -> None:
    before, after = plan_upload(cases(400), 4), plan_upload(cases(400, changed=4), 4)
    new = after.parts().keys() - before.parts().keys()
    # Of each changed case: its program, its small files, and at worst a run of manifests of its own.
    assert len(new) <= 4 * 3
    assert before.digest != after.digest


@pytest.mark.slow
def test_another_night_changes_no_object() -> None:
    before, after = plan_upload(cases(400, night="1"), 4), plan_upload(cases(400, night="2"), 4)
    assert after.digest != before.digest
    assert after.parts().keys() == before.parts().keys()
    assert len(after.snapshot.tails) == 1
    assert assembled(after) == contents(cases(400, night="2"))


@pytest.mark.slow
def test_a_case_that_comes_or_goes_moves_no_other_cut() -> None:
    whole = plan_upload(cases(400), 4)
    without = plan_upload([one for one in cases(400) if "-00123-" not in one.path], 4)
    assert len(without.parts().keys() - whole.parts().keys()) <= 1


def test_small_and_large_manifests() -> None:
    large = {"manifest.json": SMALL, "expected.safetensors": SMALL - 1, "inputs.safetensors": 0}
    made_plan = plan_upload([case(0, files=large), case(1)], 1)
    files = dict(made_plan.snapshot.files())
    assert files["models/xnnpack/case-00000/manifest.json"].pack is None
    assert files["models/xnnpack/case-00000/inputs.safetensors"].pack is not None
    assert assembled(made_plan) == contents([case(0, files=large), case(1)])


def test_the_snapshot_s_bytes_are_fixed() -> None:
    """Consumers pin the digest: if this changes, every lock file in the world is out of date."""
    made_plan = plan_upload([made("s/f/c", {"manifest.json": b"{}", "a": b"1", "b": b"22"})], 1)
    assert made_plan.data == encode(made_plan.snapshot)
    assert msgspec.json.decode(made_plan.data)["schema"] == "karat.snapshot/2"
    assert made_plan.digest == ("3d4978228ba42194bb7281d1c4856818844fb4f954e0c96ce1ea2a0d1e602bf5")
