"""Not yet."""

from karat.goldens.shapes import Golden, Reading, Shape


class _Stub:
    name = "series-lines"
    shape: Shape = "series"

    def claims(self, data: bytes) -> bool:
        return False

    def read(self, data: bytes) -> Reading:
        return Reading(None)

    def write(self, golden: Golden, like: bytes | None = None) -> bytes:
        return b""


FORMAT = _Stub()
