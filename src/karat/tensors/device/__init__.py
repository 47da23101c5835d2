"""Tensors that lie on a device, compared and measured there."""
