"""Reports of a hunt, made from its journal alone; and the live view while it runs."""
