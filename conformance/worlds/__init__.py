"""Worlds: where a Program runs on a backend."""
