"""Timelines: what can be put under test, in order, and how."""
