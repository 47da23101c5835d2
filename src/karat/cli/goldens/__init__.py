"""Commands that compare, refresh and decide about goldens."""
