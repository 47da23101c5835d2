"""Commands that set karat up and explain it."""
