"""Snippets that carry a profile to a server: one module per target."""
