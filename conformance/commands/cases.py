"""``allranks cases``: list the shipped cases, or print one."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from allranks.conformance.casefile import dumps
from allranks.conformance.cases import shipped
from allranks.conformance.commands.options import Parser
from allranks.errors import UsageError


def run(argv: list[str]) -> int:
    """List the shipped cases, or print one."""
    parser = Parser(prog="allranks cases", description="List the shipped cases, or print one as JSON.")
    parser.add_argument("name", nargs="?", help="print this case")
    arguments = parser.parse_args(argv)
    cases = shipped()
    if arguments.name is not None:
        if arguments.name not in cases:
            raise UsageError(f"name={arguments.name!r}: shipped are {', '.join(cases)}")
        sys.stdout.write(dumps(cases[arguments.name]))
        return 0
    table = Table()
    table.add_column("case", no_wrap=True, min_width=max(map(len, cases)))  # to be copied
    for column in ("what it is about", "ranks", "reports"):
        table.add_column(column, overflow="fold")
    for name, case in cases.items():
        table.add_row(name, case.title, str(case.program.rank_count), ", ".join(case.origins))
    Console().print(table)
    return 0
