"""Snapshots in pytest: what a test computed, held against the golden beside it."""
