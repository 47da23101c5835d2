"""The detector: where a series of numbers changes its level, and how likely that is by chance. Pure."""
