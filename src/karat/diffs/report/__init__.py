"""A Diff as CSV, JSON, terminal text, Markdown, HTML page and pull request text."""
