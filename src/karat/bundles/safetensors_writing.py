"""Writing safetensors: through the library's own serialiser, straight from where the elements lie.

The library gets pointers, so a tensor of ten gigabytes is not copied; it orders tensors by the width of
their dtype and then by name, and no metadata is given to it: the same tensors make the same bytes.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from karat.findings import UsageError
from karat.tensors.dtypes import stored
from karat.tensors.tensor import Tensor

_LENGTH = 8


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Writes a new file and waits for the disk; the sha256 of its header, length and padding included."""
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
    # The library writes another file and moves it here, readable to this user alone: so the name is taken
    # first, which fails where something is, and its mode given to what replaces it.
    with path.open("xb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    try:
        safetensors.serialize_file(specs, path)
    except safetensors.SafetensorError as error:
        raise _as_os_error(error, path) from None
    alive.clear()
    return _synced_header(path, mode)


def _as_os_error(error: Exception, path: Path) -> Exception:
    """A full disk is a full disk, whoever noticed it; anything else stays what it is."""
    found = re.search(r"os error (\d+)", str(error))
    if found is None:
        return error
    number = int(found[1])
    return OSError(number, os.strerror(number), str(path))


def _synced_header(path: Path, mode: int) -> str:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fchmod(handle, mode)
        os.fsync(handle)
        length = os.pread(handle, _LENGTH, 0)
        header = os.pread(handle, int.from_bytes(length, "little"), _LENGTH)
    finally:
        os.close(handle)
    return sha256(length + header).hexdigest()
