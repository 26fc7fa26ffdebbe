"""Readers of pasted text and logs; a reader never guesses."""
