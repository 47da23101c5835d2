"""What is wrong with the goldens of a tree as it stands."""
