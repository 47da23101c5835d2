"""The pytest plugin; it must cost nothing to whoever did not ask for it, so it imports pytest alone."""
