"""Packing: the cases of capture directories as zips that any machine can verify."""
