"""The store: bundles by content, references by name; a local folder or a bucket. Packing, too.

In: places with cases; names, dates and digests. Out: objects and references that are whole or not there;
snapshots, which are places again; zips. Called by `cli`, `diff` and `replay`.
"""
