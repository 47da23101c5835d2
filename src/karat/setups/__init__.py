"""Setting karat up in a folder: what its goldens look like, and what this machine lacks."""
