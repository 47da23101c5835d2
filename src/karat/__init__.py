"""karat keeps the golden values of machine-learning frameworks honest."""

__version__ = "0.1.0"
