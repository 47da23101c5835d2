"""The cache: private, bounded, shared by processes, doubted, and never in the way."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from karat.findings import UsageError
from karat.net.client import Answer, Answers, Token
from karat.sources.cache import LIMIT, Cache, CachedFile, Shelf, ShelfRecord, cache_folder, evict
from karat.system.secrets import Secret


def env_of(folder: Path, **more: str) -> dict[str, str]:
    return {"KARAT_CACHE_DIR": str(folder), **more}


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"KARAT_CACHE_DIR": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/c"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/karat"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/karat"),
        ({"HOME": "/h"}, "/h/.cache/karat"),
    ],
)
def test_where_it_lies(env: dict[str, str], folder: str) -> None:
    assert cache_folder(env) == Path(folder)


def test_how_large_it_grows() -> None:
    assert LIMIT.value({}) == 2048 << 20
    assert LIMIT.value({"KARAT_CACHE_MAX_MB": "3"}) == 3 << 20
    for odd in ("much", "-1", "9" * 5000):
        with pytest.raises(UsageError, match="KARAT_CACHE_MAX_MB"):
            LIMIT.value({"KARAT_CACHE_MAX_MB": odd})


def test_nobody_else_may_look(tmp_path: Path) -> None:
    cache = Cache(env_of(tmp_path / "c"))
    for folder in [tmp_path / "c", *(p for p in (tmp_path / "c").rglob("*") if p.is_dir())]:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((cache.folder / "salt").stat().st_mode) == 0o600
    cache.close()


def test_what_others_may_see_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "c" / "v1").mkdir(parents=True, mode=0o755)
    (tmp_path / "c" / "v1" / "salt").write_bytes(b"short")
    cache = Cache(env_of(tmp_path / "c"))
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    assert len((cache.folder / "salt").read_bytes()) == 32
    cache.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_place_of_somebody_elses_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    os.chown(tmp_path / "v1", 65534, 65534)
    check_replaced(tmp_path)


def test_what_was_kept_is_there_the_next_time(tmp_path: Path) -> None:
    for expected in (None, "v1"):
        cache = Cache(env_of(tmp_path))
        with cache.shelf("a", "b") as shelf:
            assert (shelf.record.validator or None) == expected
            shelf.note(ShelfRecord(validator="v1"))
        cache.close()


def test_two_keys_are_two_shelves(tmp_path: Path) -> None:
    cache = Cache(env_of(tmp_path))
    with cache.shelf("a", "bc") as one, cache.shelf("ab", "c") as other:
        assert one.folder != other.folder
    cache.close()


def test_one_user_of_a_shelf_at_a_time(tmp_path: Path) -> None:
    caches = [Cache(env_of(tmp_path)), Cache(env_of(tmp_path))]
    inside, most, lock = 0, 0, threading.Lock()

    def use(cache: Cache) -> None:
        nonlocal inside, most
        with cache.shelf("x"):
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.01)
            with lock:
                inside -= 1

    threads = [threading.Thread(target=use, args=(caches[i % 2],)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    for cache in caches:
        cache.close()


def test_a_read_only_place_is_replaced(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    # Root may write everywhere but where the kernel itself says no.
    check_replaced(Path("/proc/karat") if os.geteuid() == 0 else tmp_path / "c")


def test_a_place_that_is_a_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("not a folder")
    check_replaced(tmp_path / "c")


def check_replaced(place: Path) -> None:
    notices: list[str] = []
    cache = Cache(env_of(place), notice=notices.append)
    with cache.shelf("x") as shelf:
        shelf.note(ShelfRecord(validator="v"))
        assert place not in shelf.folder.parents
        inside = shelf.folder
    cache.answers.keep("u", None, Answer(etag="e", body=b"b"))
    cache.close()
    assert not inside.exists()
    assert len(notices) == 1
    assert "cannot be used" in notices[0]


def filled(folder: Path, name: str, size: int, used: float) -> Path:
    shelf = folder / "shelves" / name
    shelf.mkdir(parents=True)
    (shelf / "data").write_bytes(os.urandom(size))
    for path in (shelf / "data", shelf):
        os.utime(path, (used, used))
    return shelf


@pytest.mark.slow
@given(sizes=st.lists(st.integers(1, 60_000), max_size=8), limit=st.integers(0, 200_000))
def test_the_least_recently_used_goes_first(sizes: list[int], limit: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        check_eviction(Path(name), sizes, limit)


def check_eviction(folder: Path, sizes: list[int], limit: int) -> None:
    shelves = [filled(folder, str(i), size, 1000.0 + i) for i, size in enumerate(sizes)]
    evict(folder, limit)
    left = [shelf.exists() for shelf in shelves]
    assert left == sorted(left), "an older one is left while a newer one is gone"
    held = sum(p.stat().st_blocks * 512 for s in shelves if s.exists() for p in (s, s / "data"))
    assert held <= limit


def test_the_last_to_leave_tidies_up_and_no_one_else(tmp_path: Path) -> None:
    env = env_of(tmp_path, KARAT_CACHE_MAX_MB="0")
    first, second = Cache(env), Cache(env)
    with first.shelf("x") as shelf:
        (shelf.folder / "data").write_bytes(bytes(5000))
    first.close()
    assert (shelf.folder / "data").exists(), "another process may be reading it"
    second.close()
    assert not shelf.folder.exists()


@pytest.mark.slow
def test_a_live_process_keeps_what_it_uses(tmp_path: Path) -> None:
    script = (
        "import sys, os\n"
        "from karat.sources.cache import Cache\n"
        "cache = Cache(dict(os.environ))\n"
        "with cache.shelf('x') as shelf:\n"
        "    (shelf.folder / 'data').write_bytes(bytes(5000))\n"
        "print(shelf.folder, flush=True)\n"
        "sys.stdin.readline()\n"
    )
    env = {**os.environ, **env_of(tmp_path, KARAT_CACHE_MAX_MB="0")}
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )
    with process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        Cache(env).close()
        assert (folder / "data").exists()
        process.kill()
    Cache(env).close()
    assert not folder.exists(), "a killed process holds nothing"


def test_a_damaged_record_is_not_believed(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "s")
    shelf.note(ShelfRecord(validator="v", names=("a",)))
    record = shelf.folder / "record"
    record.write_bytes(record.read_bytes().replace(b'"a"', b'"b"'))
    assert Shelf(tmp_path / "s").record == ShelfRecord()


@pytest.mark.slow
@given(st.binary(max_size=200))
def test_no_record_breaks_it(junk: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "record").write_bytes(junk)
        assert Shelf(Path(name)).record == ShelfRecord()


def test_a_damaged_member_is_not_believed(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "s")
    kept = shelf.keep_member("../../evil", lambda file: file.write(b"hello"))
    assert shelf.is_whole(kept)
    (path,) = shelf.paths({"x": kept}).values()
    assert path.parent == shelf.folder
    assert path.read_bytes() == b"hello"
    path.write_bytes(b"jello")
    assert not shelf.is_whole(kept)
    path.unlink()
    assert not shelf.is_whole(kept)


def test_another_version_empties_the_shelf(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "s")
    shelf.belongs_to('"one"')
    shelf.part(0, None).write_bytes(b"half")
    shelf.belongs_to('"one"')
    assert shelf.part(0, None).exists()
    shelf.belongs_to('"two"')
    assert not shelf.part(0, None).exists()
    assert shelf.record == ShelfRecord(validator='"two"')


def test_the_record_survives_a_new_look(tmp_path: Path) -> None:
    record = ShelfRecord(validator='"e"', names=("a", "b/ü"), members={"a": CachedFile(file="f", size=1, sha256="0")})
    Shelf(tmp_path / "s").note(record)
    assert Shelf(tmp_path / "s").record == record


TOKEN = Token(secret=Secret("planted-token"), header="h", found_in="GITHUB_TOKEN")


def test_answers_are_kept_by_url_and_token(tmp_path: Path) -> None:
    answers = Answers(tmp_path, b"salt")
    answers.keep("https://u", TOKEN, Answer(etag="e", link="l", body=b"body"))
    found = answers.find("https://u", TOKEN)
    assert found is not None
    assert (found.etag, found.link, found.body) == ("e", "l", b"body")
    assert answers.find("https://u", None) is None
    assert answers.find("https://v", TOKEN) is None
    assert Answers(tmp_path, b"other").find("https://u", TOKEN) is None


def test_a_damaged_answer_is_thrown_away(tmp_path: Path) -> None:
    answers = Answers(tmp_path, b"salt")
    answers.keep("u", TOKEN, Answer(etag="e", body=b"body"))
    (path,) = (p for p in tmp_path.rglob("*") if p.is_file())
    path.write_bytes(path.read_bytes().replace(b"body", b"b0dy"))
    assert answers.find("u", TOKEN) is None
    assert not path.exists()
    path.write_bytes(b"junk")
    assert answers.find("u", TOKEN) is None


def test_an_answer_of_another_content_is_not_believed(tmp_path: Path) -> None:
    """It can be decoded; only its checksum tells."""
    answers = Answers(tmp_path, b"salt")
    answers.keep("u", None, Answer(etag='"1"', body=b"first"))
    (path,) = (path for path in tmp_path.rglob("*") if path.is_file())
    path.write_bytes(path.read_bytes().replace(b"first", b"worst"))
    assert answers.find("u", None) is None
    assert not path.exists()


def test_answers_that_cannot_be_kept_are_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answers = Answers(tmp_path / "file", b"salt")
    answers.keep("u", TOKEN, Answer(etag="e", body=b"b"))
    assert answers.find("u", TOKEN) is None
