"""Sealed files: small JSON documents of a store whose last member is the sha256 of all that comes before it.

An object's name says whether it is whole; what has a name of its own, such as a reference or a pin, carries
the proof inside. So a flipped bit in a date is as visible as one in a tensor.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)
_SEAL = re.compile(rb',\n "sha256": "([0-9a-f]{64})"\n\}\n\Z')


def seal(document: msgspec.Struct) -> bytes:
    """The bytes of a file: indented, with the seal at its end."""
    body = msgspec.json.format(msgspec.json.encode(document), indent=1).removesuffix(b"\n}")
    return body + b',\n "sha256": "%s"\n}\n' % sha256(body).hexdigest().encode()


def unseal(data: bytes, kind: type[T]) -> T:
    """The document in a file, as it was sealed; ValueError if it is not, or is another's."""
    # What is no JSON at all, or another's, is said to be that, rather than to have changed.
    try:
        found = msgspec.json.decode(data, type=kind)
    except RecursionError as error:
        raise ValueError("brackets without end") from error
    end = _SEAL.search(data)
    if end is None or sha256(data[: end.start()]).hexdigest().encode() != end[1]:
        raise ValueError("one that was changed after it was sealed")
    return found
