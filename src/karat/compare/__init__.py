"""Old × new → Change. Pure: no I/O, no clock, no network. The front door is `pairs`."""
