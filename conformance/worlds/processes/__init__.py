"""World `processes`: every rank is a process of its own, under a supervisor. See ``docs/worlds.md``."""
