"""Hunts: a timeline × a probe → measurements → changes → culprits."""
