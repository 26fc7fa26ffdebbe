"""The main job: preflight, search, confirm, publish; ``python -m collbench.sweep``."""
