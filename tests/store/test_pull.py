"""Pulls: a folder appears whole and verified, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from factories.stores import Killed, Watched, case, cases, contents, dying, files_below, pulled, pushed
from karat.findings import CannotVerify, UsageError
from karat.store import references
from karat.store.backends import Backend, StoreProblem
from karat.store.objects import EXPIRING, every
from karat.store.pull import RECORD, PullOptions, pull
from karat.store.snapshot import load
from karat.store.upload import plan_upload

PAGE = b"<!DOCTYPE html><html><body>Sign in</body></html>"


def digest_of(backend: Backend, word: str = "models/nightly") -> str:
    return references.resolve(backend, word).digest


def flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1]) if data else b"x"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (flip, "expected this digest, found"),
        (lambda data: data[: len(data) // 2], "bytes, found"),
        (lambda _: PAGE, "found an HTML page"),
        (lambda _: b"", "bytes, found 0"),
        (None, "expected it to be there, found nothing"),
    ],
    ids=["flip", "cut", "html", "empty", "gone"],
)
def test_every_damaged_object_is_named_and_nothing_is_installed(
    folder: Backend, tmp_path: Path, damage: Callable[[bytes], bytes] | None, said: str
) -> None:
    digest = pushed(folder, cases(2)).digest
    objects = [one.key for one in every(folder, EXPIRING, 1)]
    assert len(objects) >= 5
    for i, key in enumerate(objects):
        target = tmp_path / f"out{i}"  # what an attempt left would be used by the next
        whole = folder.get(key)
        if damage is None:
            folder.delete([key])
        else:
            folder.put(key, damage(whole), replace=True)
        with pytest.raises(StoreProblem, match=key.rpartition("/")[2]) as caught:
            pull(folder, digest, target, PullOptions(workers=2))
        assert caught.value.finding.kind == "bundle-damaged"
        assert caught.value.exit_code == 1
        if not key.endswith(digest):  # nobody knows how long a snapshot should be
            assert said in str(caught.value)
        assert not target.exists()
        folder.put(key, whole, replace=True)
    assert pulled(folder, "models/nightly", tmp_path / "out") == contents(cases(2))


def test_an_object_under_another_s_name_is_damage(bucket: Backend, tmp_path: Path) -> None:
    digest = pushed(bucket, cases(2)).digest
    first, second = [one.key for one in every(bucket, EXPIRING, 1) if one.size == 70_000]
    bucket.copy(first, second)
    with pytest.raises(StoreProblem, match=f"object blake3:{second[-64:]}"):
        pull(bucket, digest, tmp_path / "out", PullOptions())
    assert not (tmp_path / "out").exists()


def test_a_wrong_answer_that_was_the_network_s_is_asked_again(folder: Backend, tmp_path: Path) -> None:
    digest = pushed(folder, cases(1)).digest

    class Portal(Watched):
        wrong = 3

        def get(self, key: str) -> bytes:
            self.wrong -= 1
            return PAGE if self.wrong >= 0 else super().get(key)

    portal = Portal(folder, lambda *_: None)
    portal.wrong = 1
    pull(portal, digest, tmp_path / "out", PullOptions(workers=1))
    assert files_below(tmp_path / "out") == contents(cases(1))


def test_killed_before_any_step_nothing_is_there_and_the_next_goes_on(folder: Backend, tmp_path: Path) -> None:
    digest = pushed(folder, cases(4)).digest
    counted = Watched(folder, lambda *_: None)
    pull(counted, digest, tmp_path / "counted", PullOptions(workers=1))
    for at in range(1, counted.count + 1):
        target = tmp_path / f"out{at}"
        with pytest.raises(Killed):
            pull(dying(folder, at), digest, target, PullOptions(workers=1))
        assert not target.exists()
        rest = Watched(folder, lambda *_: None)
        told = pull(rest, digest, target, PullOptions(workers=1))
        assert rest.count <= counted.count - max(0, at - 2), "what was there is not fetched again"
        assert told.fetched_bytes <= told.size
        assert files_below(target) == contents(cases(4))
    assert not list(tmp_path.glob(".karat-pull-*"))


def test_what_an_earlier_attempt_left_is_not_trusted(folder: Backend, tmp_path: Path) -> None:
    digest = pushed(folder, cases(3)).digest
    with pytest.raises(Killed):
        pull(dying(folder, 6), digest, tmp_path / "out", PullOptions(workers=1))
    (staging,) = tmp_path.glob(".karat-pull-*")
    left = [path for path in staging.rglob("*") if path.is_file()]
    assert left
    for path in left:
        path.write_bytes(flip(path.read_bytes()))
    (staging / "stranger").write_text("not of this snapshot")
    (staging / "link").symlink_to("/etc/hostname")
    assert pulled(folder, "models/nightly", tmp_path / "out") == contents(cases(3))


def test_large_files_go_on_chunk_by_chunk(folder: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("karat.store.upload.CHUNK", 1 << 16)
    some = [case(1, program=(1 << 20) + 5)]
    digest = pushed(folder, some).digest
    (file,) = [file for file in load(folder, digest).cases[0].files if file.chunks]
    assert len(file.chunks) == 17
    with pytest.raises(Killed):
        pull(dying(folder, 9), digest, tmp_path / "out", PullOptions(workers=1))
    told = pull(folder, digest, tmp_path / "out", PullOptions(workers=3))
    assert 0 < told.fetched_bytes < told.size - 6 * (1 << 16)
    assert files_below(tmp_path / "out") == contents(some)


def test_what_is_there_already_is_verified_and_left(folder: Backend, tmp_path: Path) -> None:
    digest = pushed(folder, cases(2)).digest
    target = tmp_path / "out"
    pull(folder, digest, target, PullOptions())
    before = target.stat().st_ino
    counted = Watched(folder, lambda *_: None)
    assert pull(counted, digest, target, PullOptions()).already
    assert counted.count == 1  # the snapshot
    assert target.stat().st_ino == before
    victim = next(path for path in target.rglob("*.pte"))
    victim.write_bytes(flip(victim.read_bytes()))
    with pytest.raises(UsageError, match="--replace"):
        pull(folder, digest, target, PullOptions())
    assert not pull(folder, digest, target, PullOptions(replace=True)).already
    assert files_below(target) == contents(cases(2))
    (target / "more").write_text("not of this snapshot")
    with pytest.raises(UsageError, match="--replace"):
        pull(folder, digest, target, PullOptions())


def test_a_folder_is_replaced_in_one_step_or_stays(folder: Backend, tmp_path: Path) -> None:
    old, new = pushed(folder, cases(2)).digest, pushed(folder, cases(3, changed=1)).digest
    target = tmp_path / "out"
    pull(folder, old, target, PullOptions())
    with pytest.raises(UsageError, match="found a folder that is not empty"):
        pull(folder, new, target, PullOptions())
    with pytest.raises(Killed):
        pull(dying(folder, 4), new, target, PullOptions(workers=1, replace=True))
    assert files_below(target) == contents(cases(2))
    pull(folder, new, target, PullOptions(replace=True))
    assert files_below(target) == contents(cases(3, changed=1))
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_replacing_without_an_exchange(folder: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("karat.system.files._EXCHANGE", 1 << 20)  # no such flag: EINVAL
    target = tmp_path / "out"
    pull(folder, pushed(folder, cases(1)).digest, target, PullOptions())
    pull(folder, pushed(folder, cases(2)).digest, target, PullOptions(replace=True))
    assert files_below(target) == contents(cases(2))


def test_what_stands_in_the_way_stays(folder: Backend, tmp_path: Path) -> None:
    digest = pushed(folder, cases(1)).digest
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("mine")
    link.symlink_to(tmp_path)
    for target in (file, link):
        with pytest.raises(UsageError, match="found something else"):
            pull(folder, digest, target, PullOptions(replace=True))
    (tmp_path / "empty").mkdir()
    pull(folder, digest, tmp_path / "empty", PullOptions())
    assert file.read_text() == "mine"


def test_only_some_cases(folder: Backend, tmp_path: Path) -> None:
    digest = pushed(folder, cases(12)).digest
    only = ("models/*/case-0000[3]", "**/case-00007-*")
    told = pull(folder, digest, tmp_path / "out", PullOptions(only=only[1:]))
    assert told.cases == 1
    assert files_below(tmp_path / "out") == contents([case(7)])
    with pytest.raises(UsageError, match="--only: expected a case that matches"):
        pull(folder, digest, tmp_path / "none", PullOptions(only=("nothing/**",)))
    assert (tmp_path / "out" / RECORD).is_file()


def test_of_two_pulls_to_one_folder_the_second_replaces_nothing(folder: Backend, tmp_path: Path) -> None:
    first, second = pushed(folder, cases(1)).digest, pushed(folder, cases(2)).digest
    out = tmp_path / "out"

    def before(number: int, _verb: str, _key: str) -> None:
        if number == 2:
            pull(folder, first, out, PullOptions())

    with pytest.raises(UsageError, match="expected nothing at"):
        pull(Watched(folder, before), second, out, PullOptions(workers=1))
    assert files_below(out) == contents(cases(1))
    pull(folder, second, out, PullOptions(replace=True))
    assert files_below(out) == contents(cases(2))
    assert list(tmp_path.glob(".karat-pull-*")) == [], "what was left is cleared"


def test_leftovers_of_killed_pulls_are_cleared_and_no_others(folder: Backend, tmp_path: Path) -> None:
    digest = pushed(folder, cases(1)).digest
    pull(folder, digest, tmp_path / "out", PullOptions())
    mine = tmp_path / ".karat-pull-out-0123456789ab"
    others = [
        tmp_path / name
        for name in (".karat-pull-out-2-0123456789ab", ".karat-pull-out-mine", ".karat-pull-outer-0123456789ab")
    ]
    for path in (mine, *others):
        path.mkdir()
        (path / "half").write_text("")
    assert pull(folder, digest, tmp_path / "out", PullOptions()).already
    assert not mine.exists()
    assert all(path.exists() for path in others)


def test_a_name_may_be_as_long_as_names_are(folder: Backend, tmp_path: Path) -> None:
    some = cases(1)
    pushed(folder, some)
    assert pulled(folder, "models/nightly", tmp_path / ("ü" * 127)) == contents(some)


def test_the_folder_one_stands_in_is_not_replaced(
    folder: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = pushed(folder, cases(1)).digest
    (tmp_path / "here" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "below")
    for word in (Path(), Path("..").resolve()):
        with pytest.raises(UsageError, match="in which this command runs"):
            pull(folder, digest, word, PullOptions(replace=True))


def test_one_pull_at_a_time(folder: Backend, tmp_path: Path) -> None:
    digest = pushed(folder, cases(1)).digest
    seen: list[str] = []

    def before(number: int, _verb: str, _key: str) -> None:
        if number == 2:
            with pytest.raises(CannotVerify, match="found another one running") as caught:
                pull(folder, digest, tmp_path / "out", PullOptions())
            seen.append(str(caught.value))

    pull(Watched(folder, before), digest, tmp_path / "out", PullOptions(workers=1))
    assert len(seen) == 1


def test_a_snapshot_whose_objects_say_otherwise_is_damage(folder: Backend, tmp_path: Path) -> None:
    """Whoever made it lied about a file's hash; its objects are whole."""
    import msgspec

    from karat.store.objects import key_of
    from karat.store.snapshot import encode
    from karat.system.hashes import sha256_hex as hashed

    pushed(folder, cases(1))
    snapshot = plan_upload(cases(1), 1).snapshot
    files = tuple(
        msgspec.structs.replace(file, digest="0" * 64) if file.pack is not None else file
        for file in snapshot.cases[0].files
    )
    lied = msgspec.structs.replace(snapshot, cases=(msgspec.structs.replace(snapshot.cases[0], files=files),))
    data = encode(lied)
    folder.put(key_of(hashed(data)), data)
    with pytest.raises(StoreProblem, match="hold something else"):
        pull(folder, hashed(data), tmp_path / "out", PullOptions())
    assert not (tmp_path / "out").exists()
