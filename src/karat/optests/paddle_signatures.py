"""Signatures of Paddle's ops, asked of Paddle itself: what the original's tests are written against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from karat.optests.arguments import Signature


def signature_of(
    op: str, inputs: Mapping[str, list[Any]], outputs: tuple[str, ...], attrs: Mapping[str, Any]
) -> Signature | None:
    """The kernel's signature for these inputs and attributes; None for an op that Paddle has no kernel of.

    Must be called in dynamic mode. Which kernel it is may hang on which inputs are given, so tensors are needed.
    """
    import paddle  # noqa: PLC0415 - only here with a value of Paddle's at hand
    from paddle.base import framework  # noqa: PLC0415

    try:
        proto = framework.OpProtoHolder.instance().get_op_proto(op)
        written = framework.canonicalize_attrs(dict(attrs), proto)
    except (ValueError, TypeError):
        written = dict(attrs)
    blank = {name: [paddle.zeros([1])] for name in outputs}
    try:
        found = framework._dygraph_tracer()._get_kernel_signature(op, inputs, blank, written)  # noqa: SLF001 - nobody else knows the order
    except (RuntimeError, ValueError, TypeError, AttributeError):
        return None
    if not any(found):
        return None
    names = [tuple(str(name) for name in part) for part in found]
    return Signature(inputs=names[0], attrs=names[1], outputs=names[2])
