"""A run's result against its golden: which values are out of tolerance, and whether everything is there."""
