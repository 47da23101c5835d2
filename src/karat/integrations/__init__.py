"""Test suites of others, captured without touching a test file."""
