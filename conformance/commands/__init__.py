"""Subcommands of ``allranks`` that conformance brings."""
