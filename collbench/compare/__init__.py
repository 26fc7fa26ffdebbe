"""Compare two run records: the ratio B / A of each case, with an interval and a verdict."""

from __future__ import annotations

from collbench.compare.compare import CaseComparison, Comparison, Verdict, compare
from collbench.compare.describe import document, text
from collbench.compare.keys import KEYS, Difference, differences, facts

__all__ = [
    "KEYS",
    "CaseComparison",
    "Comparison",
    "Difference",
    "Verdict",
    "compare",
    "differences",
    "document",
    "facts",
    "text",
]
