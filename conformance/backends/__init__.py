"""Backends: communicators that can be put under test, one file each."""
