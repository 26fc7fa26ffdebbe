"""What the goals are measured with; run as modules from a clone."""
