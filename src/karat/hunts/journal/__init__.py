"""The journal: everything a hunt did and saw, in one SQLite file."""
