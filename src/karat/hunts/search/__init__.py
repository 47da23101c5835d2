"""The search: pure functions from what was observed to what to run next."""
