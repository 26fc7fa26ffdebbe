"""Time the small collectives of LLM serving, search their settings, and keep the result live."""

__version__ = "0.1.0"
