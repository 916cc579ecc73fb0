"""Conformance of GPU communicators: Programs, Worlds, Traces, checks.

Data flows one way: a `Program` (plain data) is run by a World on a backend, which gives a `Trace` (plain data); checks
are pure functions of the two; reports are made of what they say.
"""
