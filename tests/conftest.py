"""What every lane has in common."""

from hypothesis import settings

# A machine that does other things too must not fail a property for being slow at it.
settings.register_profile("collbench", deadline=None, max_examples=50)
settings.load_profile("collbench")
