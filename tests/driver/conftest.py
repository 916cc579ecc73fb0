"""The rows are for the child process of `test_rows.py`, which says what driver they are about."""

collect_ignore = ["rows"]
