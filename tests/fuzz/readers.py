"""All readers, by name."""

from fuzz import answers, cases, runs, texts
from fuzz.reader import READERS, Reader

__all__ = ["READERS", "Reader", "answers", "cases", "runs", "texts"]
