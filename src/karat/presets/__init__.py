"""Presets: the gates of well-known suites, as TOML, and what a suite's own tree says about its gate."""
