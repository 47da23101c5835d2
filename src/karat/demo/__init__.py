"""The embedded sample: a small repository of goldens, and a refresh with everything wrong in it."""
