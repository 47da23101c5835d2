"""Approvals: waivers that a range of commits adds, and who has approved them."""
