"""Zip archives as artifact uploads make them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping


def zipped(members: Mapping[str, bytes | str], *, compress: bool = True) -> bytes:
    """The bytes of an archive, the same for the same members."""
    buffer = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name, date_time=(2026, 1, 1, 0, 0, 0))
            info.compress_type = method
            info.external_attr = 0o644 << 16
            archive.writestr(info, content)
    return buffer.getvalue()
