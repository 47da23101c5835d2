"""A static scan of op tests: source files in, findings out; nothing is imported or run."""
