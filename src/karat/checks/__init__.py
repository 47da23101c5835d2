"""What a run left, against its goldens: find the golden, judge, report."""
