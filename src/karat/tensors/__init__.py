"""Tensors: arrays of any framework as dtype, shape and bytes; their hash, their numbers, and two compared.

In: torch, jax and numpy arrays, or bytes that lie somewhere. Out: `Tensor`, `Statistics`, `Comparison`.
Called by `bundles` (reading and writing), `captures` and `replay` (judging), `diff`. It needs numpy and
msgspec alone; a framework is only touched if the value handed in is of it.
"""
