"""Writing safetensors: through the library's own serialiser, straight from where the elements lie.

The library gets pointers, so a tensor of ten gigabytes is not copied; it orders tensors by the width of
their dtype and then by name, and no metadata is given to it: the same tensors make the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from karat.findings import UsageError
from karat.tensors.dtypes import stored
from karat.tensors.tensor import Tensor

_LENGTH = 8


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Writes the file and waits for the disk; the sha256 of its header, length and padding included."""
    try:
        import safetensors  # noqa: PLC0415 - an extra, for those who capture
    except ImportError:
        raise UsageError(
            "expected the library safetensors, with which tensors are written; it is not installed",
            next_command="pip install 'karat[capture]'",
        ) from None
    import numpy as np  # noqa: PLC0415 - heavy, and here it is needed

    specs, alive = {}, []
    for name in sorted(tensors):
        tensor = tensors[name]
        form = stored(tensor.dtype, tensor.shape)
        elements = np.frombuffer(tensor.data, np.uint8)
        alive.append(elements)  # the library holds addresses only
        specs[name] = safetensors.TensorSpec(
            dtype=form.dtype,
            shape=list(form.shape),
            data_ptr=elements.ctypes.data if elements.size else 0,
            data_len=elements.size,
        )
    safetensors.serialize_file(specs, path)
    alive.clear()
    return _synced_header(path)


def _synced_header(path: Path) -> str:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
        length = os.pread(handle, _LENGTH, 0)
        header = os.pread(handle, int.from_bytes(length, "little"), _LENGTH)
    finally:
        os.close(handle)
    return sha256(length + header).hexdigest()
