"""Engines: where jobs run: as processes of this machine, or on a Ray cluster."""
