"""Changes: where a series of measurements changed its level, crashed, or has a hole."""
