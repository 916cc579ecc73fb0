"""The pytest plugin: ``pytest --pyargs allranks.conformance --allranks-backend NAME|module:Class [-n auto]``.

One test for each requirement and source of Programs, named ``CACHE-2[CACHE]``: is CACHE-2 broken by a Program of the
family CACHE? The Programs of a family are run once, by the first of its tests that is run; with pytest-xdist all tests
of a family go to one worker.

pytest imports this module in every run, whatever is tested: it imports nothing that takes time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from allranks.conformance.result import Finding, Result
    from allranks.conformance.settings import Settings

DETERMINISM: Final = "DETERMINISM"
_TESTS: Final = Path(__file__).with_name("test_requirements.py")
_SETTINGS: Final = pytest.StashKey["Settings"]()
_RESULTS: Final = pytest.StashKey[dict[str, "Result | Exception"]]()


class BrokenError(Exception):
    """A requirement is broken; the text is all there is to show."""


@pytest.hookimpl
def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, all of which begin with ``--allranks-``."""
    group = parser.getgroup("allranks", "conformance of GPU communicators (allranks)")
    group.addoption("--allranks-backend", metavar="NAME|MODULE:CLASS", help="the communicator under test")
    group.addoption("--allranks-ranks", metavar="N", help="ranks at most (default 4)")
    group.addoption("--allranks-machine", metavar="M", help="the simulated machine (default h100)")
    group.addoption("--allranks-seed", metavar="S", help="what the Programs depend on (default 0)")
    group.addoption("--allranks-effort", metavar="E", help="quick, ci, standard or deep (default standard)")
    group.addoption("--allranks-programs", metavar="N", help="Programs a family, instead of an effort")
    group.addoption("--allranks-requirements", metavar="ID,...", help="ids or families (default: all)")
    group.addoption("--allranks-expected-failures", metavar="FILE", help="TOML file: requirement = reason")
    group.addoption("--allranks-case-dir", metavar="DIR", help="where failing cases go (default allranks-cases)")
    group.addoption(
        "--allranks-world", metavar="W", help="threads, processes or mpi (default: as the backend needs it)"
    )
    group.addoption("--allranks-launcher", metavar="L", help="world mpi: mpiexec, srun, torchrun; none in every rank")
    group.addoption("--allranks-deadline", metavar="S", help="worlds of processes: seconds without progress")
    group.addoption("--allranks-quiet-timeout", metavar="S", help="seconds that the backend may stay away (default 20)")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Keep the tests of a family on one xdist worker, unless another distribution was asked for."""
    # A wrapper comes before pytest-xdist, which takes its own default where nothing is said.
    option = config.option
    if option.allranks_backend and getattr(option, "numprocesses", None) and option.dist == "no":
        option.dist = "loadgroup"
    return (yield)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Group the tests of a family by their names.

    pytest-xdist 3.8 writes the group of a test into its node id, which pytest 9.2 does not let it change any more.
    """
    if config.option.allranks_backend is None or config.getvalue("dist") != "loadgroup":
        return None
    # pytest-xdist has no types, and is imported where it is known to be there.
    from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

    class ByFamily(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path, _, name = nodeid.rpartition("::")
            if path.endswith(_TESTS.name) and name.endswith("]"):
                return _group(name[name.index("[") + 1 : -1])
            scope: str = super()._split_scope(nodeid)
            return scope

    return ByFamily(config, log)


def _group(source: str) -> str:
    return f"allranks-{source}"


@pytest.hookimpl
def pytest_configure(config: pytest.Config) -> None:
    """Check the options before anything is collected."""
    if config.option.allranks_backend is None:
        return
    from allranks.conformance.backend import load_backend
    from allranks.errors import UsageError

    try:
        config.stash[_SETTINGS] = _settings(config)
        load_backend(config.option.allranks_backend)
    except UsageError as error:
        raise pytest.UsageError(f"allranks: {error}") from None


def _settings(config: pytest.Config) -> Settings:
    from allranks.conformance.commands import options
    from allranks.conformance.settings import settings_of

    readers: dict[str, Callable[[str], Any]] = {
        "ranks": options.ranks,
        "machine": str,
        "seed": options.whole,
        "effort": str,
        "programs": options.positive,
        "requirements": lambda text: tuple(part.strip() for part in text.split(",") if part.strip()),
        "expected_failures": lambda text: config.invocation_params.dir / text,
        "case_dir": options.folder,
        "quiet_timeout": options.seconds,
        "world": str,
        "launcher": str,
        "deadline": options.seconds,
    }
    values = {}
    for name, reader in readers.items():
        text = getattr(config.option, f"allranks_{name}")
        if text is not None:
            values[name] = options.read(f"--allranks-{name.replace('_', '-')}", reader, text)
    values.pop("case_dir", None)
    for name in ("quiet_timeout", "deadline"):
        if name in values:
            values[f"{name}_s"] = values.pop(name)
    return settings_of(backend=config.option.allranks_backend, **values)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End the whole job if some of its ranks are stuck, and this is the first of them."""
    settings = config.stash.get(_SETTINGS, None)
    if settings is not None and settings.together:
        from allranks.conformance.worlds.together import leave

        leave(1)


@pytest.hookimpl
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> Any:
    """Make the tests of the one file that has none."""
    if module_path.name != _TESTS.name or not module_path.samefile(_TESTS):
        return None
    return Requirements.from_parent(parent, path=module_path)


class Requirements(pytest.File):
    """All requirements, on the Programs of all sources."""

    def collect(self) -> Iterator[pytest.Item]:
        """Give the tests, those of a source together."""
        settings = self.config.stash.get(_SETTINGS, None)
        if settings is None:
            raise self.CollectError("allranks: --allranks-backend=NAME|module:Class says which communicator to test")
        from allranks.conformance.requirements import REQUIREMENTS

        for source in settings.sources:
            names = [name for name in settings.requirements if REQUIREMENTS[name].checks]
            for name in (*names, DETERMINISM):
                yield RequirementItem.from_parent(self, name=f"{name}[{source}]", requirement=name, source=source)
        for name in settings.requirements:
            if not REQUIREMENTS[name].checks:
                source = REQUIREMENTS[name].family
                yield RequirementItem.from_parent(self, name=f"{name}[{source}]", requirement=name, source=source)


class RequirementItem(pytest.Item):
    """One requirement on the Programs of one source."""

    def __init__(self, *, requirement: str, source: str, **rest: Any) -> None:
        super().__init__(**rest)
        self.requirement = requirement
        self.source = source
        self.add_marker(pytest.mark.xdist_group(_group(source)))

    @property
    def settings(self) -> Settings:
        """What was asked for."""
        return self.config.stash[_SETTINGS]

    def runtest(self) -> None:
        """Look up what the Programs came to; the first test of a source runs them."""
        from allranks.conformance.requirements import REQUIREMENTS

        if self.requirement == DETERMINISM:
            self._judge_run(self._result())
            return
        requirement, expected = REQUIREMENTS[self.requirement], self.settings.expected
        if not requirement.checks:
            pytest.skip(f"{self.requirement} has no check yet")
        result = self._result()
        status, reason = result.status(self.requirement), expected.reason(self.requirement, self.source)
        if status == "fail":
            text = self._told(result.findings[self.requirement], reduced=not reason)
            if reason or requirement.level == "should":
                pytest.xfail(f"{reason or 'a should, not a must'}\n{text}")
            raise BrokenError(text)
        if expected.must_fail(self.requirement, self.source):
            raise BrokenError(
                f"{expected.path}: {self.name} is expected to fail ({reason}), but the result is {status}: "
                "remove the entry"
            )
        if status == "not supported":
            pytest.skip(f"the backend does not have what it needs: {' or '.join(requirement.capabilities)}")
        if status == "not run":
            what = f"no Program of {self.source} has what {self.requirement} looks at"
            if requirement.family == self.source:
                raise BrokenError(f"nothing was evaluated: {what}; run more (--allranks-effort, --allranks-programs)")
            pytest.skip(f"{what}; those of {requirement.family} do")

    def _judge_run(self, result: Result) -> None:
        """Fail if the run itself went wrong: other Traces from the same Programs, or Programs without an end."""
        from allranks.conformance.report import differing

        self.user_properties.append(("draws", result.draws.get(self.source, "")))
        if result.nondeterministic:
            raise BrokenError(f"{differing(result)}\n\n{self._told(result.nondeterministic[0])}")
        if result.interruptions and not self.settings.expected.reason("RDV-1", self.source):
            raise BrokenError(self._told(result.interruptions[0]))

    def _result(self) -> Result:
        from allranks.conformance.running import check

        results = self.config.stash.setdefault(_RESULTS, {})
        if self.source not in results:
            try:
                results[self.source] = check(self.settings, sources=[self.source])
            except Exception as error:  # noqa: BLE001 -- each test of the source fails of it, and none runs it again
                results[self.source] = error
        found = results[self.source]
        if isinstance(found, Exception):
            raise found
        return found

    def _told(self, finding: Finding, *, reduced: bool = True) -> str:
        """Reduce a finding, keep it as a case file, and tell it; one that is known is not worth the time."""
        from allranks.conformance.isolated import reduce_findings
        from allranks.conformance.kept import keep, replay_line
        from allranks.conformance.report import describe
        from allranks.conformance.settings import CASE_DIR
        from allranks.conformance.worlds.together import first_rank

        settings = self.settings
        if settings.together and not first_rank(settings):
            return "\n".join(describe(finding))  # the first rank keeps it
        folder = self.config.invocation_params.dir / (self.config.option.allranks_case_dir or CASE_DIR) / self.source
        keep(finding, folder, settings)  # at once: reducing may be interrupted
        reduced = reduced and settings.world == "threads"  # elsewhere it has been done
        (small,) = reduce_findings([finding], settings.job(self.source)) if reduced else [finding]
        return "\n".join(describe(small, replay_line(keep(small, folder, settings), settings)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the story alone: where in this package it was told is of no use to anybody."""
        if isinstance(excinfo.value, BrokenError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Say what the test is called."""
        return self.path, None, self.name
