"""Engines: where jobs run: as processes of this machine, or on a cluster of Ray or Slurm."""
