"""Failures that are the caller's."""


class UsageError(ValueError):
    """A wrong argument, option or file; the message names it, its value and the rule that it breaks.

    Commands end with exit code 2.
    """
