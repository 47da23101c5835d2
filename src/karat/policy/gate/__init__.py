"""The gate: evidence and exemptions in, findings out."""
