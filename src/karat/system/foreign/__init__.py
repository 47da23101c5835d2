"""What strangers wrote: how much of it is taken, and readers that it cannot make run for ever."""
