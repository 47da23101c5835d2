"""What befalls files between two machines: seeded, and never nothing."""

from __future__ import annotations

import io
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import zstandard

from karat.bundles.index import build, decode, encode
from karat.bundles.zips import DEFLATE, ZSTD, ZipMember, directory, local_header, read_members

PAGE = b"<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>\n"
Bytes = Callable[[bytes, random.Random], bytes]
Pieces = list[tuple[ZipMember, bytes]]


def flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def zero(data: bytes, rng: random.Random) -> bytes:
    start = rng.choice([i for i, byte in enumerate(data) if byte])
    size = min(rng.choice((1, 16, 512)), len(data) - start)
    return data[:start] + bytes(size) + data[start + size :]


def junk_after(data: bytes, rng: random.Random) -> bytes:
    return data + rng.randbytes(rng.randint(1, 100))


def junk_before(data: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(rng.randint(1, 100)) + data


def scramble(data: bytes, rng: random.Random) -> bytes:
    """Several bytes at once, anywhere, each another than it was."""
    changed = bytearray(data)
    for at in rng.sample(range(len(data)), min(len(data), rng.randint(2, 64))):
        changed[at] ^= rng.randint(1, 255)
    return bytes(changed)


def swap_blocks(data: bytes, rng: random.Random) -> bytes:
    """As a disk or a download that took two blocks for each other."""
    size = rng.choice([n for n in (512, 64, 8, 1) if 2 * n <= len(data)] or [0])
    starts = range(0, len(data) - size + 1, max(1, size))
    i, j = sorted(rng.sample(starts, 2)) if len(starts) > 1 else (0, 0)
    one, two = data[i : i + size], data[j : j + size]
    changed = data[:i] + two + data[i + size : j] + one + data[j + size :]
    return changed if changed != data else flip(data, rng)


def page(data: bytes, rng: random.Random) -> bytes:  # noqa: ARG001 - one form for all
    return PAGE


ANYWHERE: tuple[Bytes, ...] = (flip, flip, cut, zero, junk_after, junk_before, page, scramble, swap_blocks)


def in_zip(change: Callable[[Pieces, random.Random], None]) -> Bytes:
    """A change of the members, after which headers, checksums and directory are right again."""

    def changed(data: bytes, rng: random.Random) -> bytes:
        pieces = [(m, data[m.data : m.end]) for m in read_members(io.BytesIO(data))]
        change(pieces, rng)
        return _written(pieces)

    changed.__name__ = change.__name__
    return changed


def _written(pieces: Pieces) -> bytes:
    whole, members = bytearray(), []
    for member, data in pieces:
        moved = msgspec.structs.replace(member, start=len(whole))
        whole += local_header(moved) + data
        members.append(moved)
    return bytes(whole) + directory(members, len(whole))


def _named(piece: tuple[ZipMember, bytes], name: str) -> tuple[ZipMember, bytes]:
    return msgspec.structs.replace(piece[0], name=name), piece[1]


@in_zip
def swap_members(pieces: Pieces, rng: random.Random) -> None:
    while True:
        i, j = rng.sample(range(len(pieces)), 2)
        if pieces[i][1] != pieces[j][1]:
            break
    one, two = pieces[i], pieces[j]
    pieces[i], pieces[j] = _named(two, one[0].name), _named(one, two[0].name)


@in_zip
def rename_member(pieces: Pieces, rng: random.Random) -> None:
    i = rng.randrange(len(pieces))
    name = pieces[i][0].name
    pieces[i] = _named(pieces[i], rng.choice((f"{name}x", name[:-1], f"x/{name}", name.upper())))


@in_zip
def rename_case(pieces: Pieces, rng: random.Random) -> None:
    folder = rng.choice(pieces[:-1])[0].name.rsplit("/", 1)[0]
    for i, piece in enumerate(pieces):
        if piece[0].name.startswith(f"{folder}/"):
            pieces[i] = _named(piece, piece[0].name.replace(folder, f"{folder}0", 1))


@in_zip
def duplicate_member(pieces: Pieces, rng: random.Random) -> None:
    pieces.insert(rng.randrange(len(pieces)), rng.choice(pieces))


@in_zip
def drop_member(pieces: Pieces, rng: random.Random) -> None:
    # Without its index a zip is any zip of cases, and nothing of them is lost.
    del pieces[rng.randrange(len(pieces) - 1)]


@in_zip
def reorder_members(pieces: Pieces, rng: random.Random) -> None:
    i, j = rng.sample(range(len(pieces)), 2)
    pieces[i], pieces[j] = pieces[j], pieces[i]


@in_zip
def page_member(pieces: Pieces, rng: random.Random) -> None:
    i = rng.randrange(len(pieces))
    pieces[i] = _stored(pieces[i][0], PAGE)


@in_zip
def change_member(pieces: Pieces, rng: random.Random) -> None:
    """What somebody does who unpacks, changes a tensor or a tolerance, and packs again."""
    i = rng.randrange(len(pieces))
    pieces[i] = _stored(pieces[i][0], flip(_unpacked(*pieces[i]), rng))


@in_zip
def older_index(pieces: Pieces, rng: random.Random) -> None:
    """The index of a pack that had one case more, or fewer, right in itself."""
    index = decode(_unpacked(*pieces[-1]))
    case, file = rng.choice(index.cases), rng.choice(index.files)
    if rng.random() < 0.5:
        cases = [each for each in index.cases if each != case]
        files = [each for each in index.files if not each.path.startswith(f"{case.path}/")]
    else:
        cases = [*index.cases, msgspec.structs.replace(case, path=f"{case.path}0")]
        files = [*index.files, msgspec.structs.replace(file, path=f"{case.path}0/manifest.json")]
    pieces[-1] = _stored(pieces[-1][0], encode(build(index.karat, cases, files, index.archive)))


def _stored(member: ZipMember, data: bytes) -> tuple[ZipMember, bytes]:
    size, crc = len(data), zlib.crc32(data)
    return msgspec.structs.replace(member, method=0, size=size, packed=size, crc=crc), data


def _unpacked(member: ZipMember, data: bytes) -> bytes:
    if member.method == DEFLATE:
        return zlib.decompress(data, -zlib.MAX_WBITS)
    if member.method == ZSTD:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data


IN_ZIPS: tuple[Bytes, ...] = (
    swap_members,
    rename_member,
    rename_case,
    duplicate_member,
    drop_member,
    reorder_members,
    page_member,
    change_member,
    older_index,
)


def befall_files(root: Path, rng: random.Random) -> str:
    """One mishap to the files below a folder; what it was."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
    one = rng.choice(files)
    number = rng.randrange(len(ANYWHERE) + 4)
    if number < len(ANYWHERE):
        one.write_bytes(ANYWHERE[number](one.read_bytes(), rng))
        return f"{ANYWHERE[number].__name__} {one.relative_to(root)}"
    how = ("swap", "rename", "lose", "duplicate")[number - len(ANYWHERE)]
    if how == "swap":
        data = one.read_bytes()
        other = rng.choice([path for path in files if path.read_bytes() != data])
        one.write_bytes(other.read_bytes())
        other.write_bytes(data)
        return f"swap {one.relative_to(root)} and {other.relative_to(root)}"
    if how == "lose":
        one.unlink()
    else:
        name = one.with_name(_other_name(one.name, rng))
        name.write_bytes(one.read_bytes())
        if how == "rename":
            one.unlink()
    return f"{how} {one.relative_to(root)}"


def _other_name(name: str, rng: random.Random) -> str:
    """Of the same kind: a digest becomes another digest."""
    at = rng.choice([i for i, char in enumerate(name) if char in "0123456789abcdef"])
    return name[:at] + rng.choice([c for c in "0123456789abcdef" if c != name[at]]) + name[at + 1 :]
