"""Timing of one rank: what is put into a window, which clock reads it, and the checks around it.

The deciding side never imports this; it gets raw times of every rank through the run record.
"""
