"""The digest of a tensor: over dtype, shape and elements, so that no part can change unnoticed.

It is written with the name of its hash, `blake3:…`, and is a tree of two levels: the elements are cut into pieces of
16 MiB, each is hashed on its own, and the digest is over dtype, shape and the pieces' hashes. So several threads can
work on one tensor, and who has the pieces' hashes has the digest without reading a byte again. `sha256:…` is what
bundles of format 1 have: one hash over dtype, shape and elements, in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from typing import Any, Literal

from karat.system.hashes import start_hash
from karat.tensors.tensor import Damaged, Tensor, TensorExtent, read_blocks, read_range

Hash = Literal["blake3", "sha256"]
PIECE = 16 << 20
_DIGEST = re.compile(r"(blake3|sha256):[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def hash_of(digest: str) -> Hash:
    """The hash that a digest was made with."""
    return "sha256" if digest.startswith("sha256:") else "blake3"


class TensorDigest:
    """The digest of elements that come in order, in blocks of any size; or in pieces, in any order."""

    def __init__(self, dtype: str, shape: tuple[int, ...], kind: Hash = "blake3") -> None:
        self._kind, tree = kind, kind == "blake3"
        self._head = f"karat.tensor/{2 if tree else 1}\0{dtype}\0{'x'.join(map(str, shape))}\0".encode()
        self.piece = PIECE if tree else 1 << 62  # Bytes that one hash is over.
        self._pieces: list[bytes] = []
        self._running, self._left = self.start(), self.piece

    def start(self) -> Any:
        """A hash for the elements of one piece."""
        return start_hash("blake3") if self._kind == "blake3" else start_hash("sha256", self._head)

    def update(self, block: memoryview | bytes) -> None:
        rest = memoryview(block)
        while rest:
            if not self._left:
                self._pieces.append(self._running.digest())
                self._running, self._left = self.start(), self.piece
            part = rest[: self._left]
            self._running.update(part)
            self._left -= len(part)
            rest = rest[len(part) :]

    def pieces(self) -> list[bytes]:
        """The hashes of what was taken; of no elements at all, that of one empty piece."""
        return [*self._pieces, self._running.digest()]

    def text(self, pieces: Iterable[bytes] | None = None) -> str:
        """The digest of what was taken, or of these pieces' hashes."""
        found = [*(self.pieces() if pieces is None else pieces)]
        whole = start_hash("blake3", self._head + b"".join(found)).digest() if self._kind == "blake3" else found[0]
        return f"{self._kind}:{whole.hex()}"


class FileDigest:
    """The digest of plain bytes, a program's for instance: one hash, as `b3sum` prints it."""

    def __init__(self, kind: Hash = "blake3") -> None:
        self._kind, self._running = kind, start_hash(kind)
        self.update = self._running.update

    def text(self) -> str:
        return f"{self._kind}:{self._running.hexdigest()}"


def digest_of(
    tensor: Tensor | TensorExtent,
    kind: Hash = "blake3",
    *,
    run: Callable[..., Iterable[bytes]] = map,
    watch: Callable[[int], object] = lambda _: None,
) -> str:
    """The digest of a tensor; `Damaged` if it cannot be read whole.

    `run`: what maps a function over pieces, an executor's `map` for instance; `watch` is called with the number of
    bytes of every block.
    """
    digest = TensorDigest(tensor.dtype, tensor.shape, kind)
    size = len(tensor.data) if isinstance(tensor, Tensor) else tensor.extent.size
    if not isinstance(tensor, Tensor) and not tensor.extent.seekable:
        for block in read_blocks(tensor.extent):
            digest.update(block)
            watch(len(block))
        return digest.text()

    def hashed(start: int) -> bytes:
        running, count = digest.start(), min(digest.piece, size - start)
        with ExitStack() as stack:
            if isinstance(tensor, Tensor):
                blocks: Iterable[memoryview] = [tensor.data[start : start + count]]
            else:
                blocks = read_range(stack.enter_context(closing(tensor.extent.open())), start, count)
            for block in blocks:
                running.update(block)
                watch(len(block))
        return bytes(running.digest())

    return digest.text(run(hashed, range(0, size or 1, digest.piece)))


def require_digest(what: str, expected: str, found: str) -> None:
    """`Damaged` unless the digest is the recorded one."""
    if found != expected:
        raise Damaged(f"{what}: expected the digest {expected}, found {found}")
