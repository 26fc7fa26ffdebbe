"""Measure a profile again, beside the default, against its record."""
