"""The trial pool: starts and ends the processes of a launch, and never imports the worker."""

from collbench.pool.pool import Pool, open_pool

__all__ = ["Pool", "open_pool"]
