"""The search space, and the sweep files that describe it."""
