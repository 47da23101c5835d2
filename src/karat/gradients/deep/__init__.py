"""`level="deep"`: derivatives of derivatives, and points where hand-written rules go wrong."""
