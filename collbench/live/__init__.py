"""What running processes really have: environments, libraries, files, logs. Read-only."""
