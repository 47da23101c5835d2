"""Readers: CSV, JSON, logs, SQLite or a golden's history, as series."""
