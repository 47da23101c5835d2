"""Bundles: named tensors, optionally a program, with a manifest; the fourth shape of a golden.

In: nested values of a test; a folder, a zip or a store's snapshot. Out: case folders on disk; cases that
can be listed, verified, loaded and streamed without being unpacked. Called by `captures` (writing), `store`,
`replay`, `diff` and `cli` (reading). The layout is documented in docs/bundles.md.
"""
