"""What people read while a sweep runs and when it has ended; text only, at most 80 columns.

Nothing is told by colour alone, and everything that comes from a file, a log or a host is
stripped of control characters. Progress goes to stderr, the summary to stdout.
"""
