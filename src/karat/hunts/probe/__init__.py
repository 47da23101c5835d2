"""The probe: the job of a point, and what its output says."""
