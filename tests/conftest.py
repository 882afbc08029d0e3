"""Fixtures and settings that all tests share."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

os.environ["TARTAN_FSYNC"] = "0"  # no test cuts the power, and a busy disk takes seconds to be forced
signal.signal(signal.SIGINT, signal.default_int_handler)  # what starts in the background of a shell ignores Ctrl-C
STATE = tempfile.TemporaryDirectory(prefix="tartan-tests-")  # runs of tests are not sealed with the user's own key
os.environ["XDG_STATE_HOME"] = STATE.name

# Hypothesis also draws constants that it reads in the modules loaded so far: which ones is the luck of the process.
setattr(providers, "_get_local_constants", Constants)  # noqa: B010 - private there, and there is no setting
settings.register_profile("quick", max_examples=30, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=300)  # `make test-all`
settings.load_profile("quick")

BUDGET_SECONDS = 2.0  # of CPU time; by judgement: 14,000 tests of which few come near it take minutes. No benchmark.
CPU_STARTED = pytest.StashKey[float]()

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def hold_little(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sorts in this process count 120 MB as held, as one that only sorts, not what thousands of tests imported."""
    if request.path.parent.name == "sort":
        for module in ("tartan.sort.engine", "tartan.sort.ranks.rank"):
            monkeypatch.setattr(f"{module}.held_bytes", lambda: 120 * 10**6)


@pytest.fixture(scope="module", autouse=True)
def give_back_freed_memory() -> Iterator[None]:
    """Let what tests of sorts in this process count as held be what is held, not what thousands of tests have freed."""
    yield
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real input; the test is skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"real input is absent: no folder {SHARED_DATA}")
    return SHARED_DATA


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one case in N of tests marked ``sampled(N)`` be part of `make test`; give drawn cases the time they need.

    Of a product of parameters these are the cases whose positions on all axes add up to a multiple of N. So each value
    of each parameter is among them, and each pair of values of two parameters wherever a third has N values or more.
    """
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is not None and sum(_positions(item)) % sampled.args[0]:
            item.add_marker(pytest.mark.exhaustive)
        if item.get_closest_marker("exhaustive") is not None:
            item.add_marker(pytest.mark.timeout(3600))


def _positions(item: pytest.Item) -> list[int]:
    """Return the position of a case on each axis of its parameters; names that one ``parametrize`` has are one axis."""
    axes = list(item.iter_markers("parametrize"))
    assert axes, f"{item.nodeid} is one case, and cannot be sampled"
    number = next(iter(item.callspec.indices.values()))  # type: ignore[attr-defined]
    positions = []
    for axis in reversed(axes):  # the last one is the fastest
        number, position = divmod(number, len(axis.args[1]))
        positions.append(position)
    assert number == 0, f"{item.nodeid} has parameters that are no decorators: give them marks of their own"
    return positions


def pytest_collection_finish() -> None:
    """Leave the tests themselves, which live to the end, out of every later search for garbage."""
    gc.collect()
    gc.freeze()


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note when a test begins."""
    item.stash[CPU_STARTED] = _cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Note the CPU time of a test where its report takes it to the process that prints the summary."""
    try:
        return (yield)
    finally:
        item.user_properties.append(("cpu_seconds", _cpu_seconds() - item.stash[CPU_STARTED]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the most expensive tests of `make test`; say in one line what a run without a GPU has shown of CUDA."""
    spent = {
        report.nodeid: dict(report.user_properties).get("cpu_seconds", 0.0)
        for report in terminalreporter.getreports("")
        if report.when == "teardown" and "exhaustive" not in report.keywords
    }
    dear = sorted((nodeid for nodeid in spent if spent[nodeid] > BUDGET_SECONDS), key=lambda nodeid: -spent[nodeid])
    if dear:
        terminalreporter.write_line(
            f"beyond the budget of {BUDGET_SECONDS:g} CPU seconds: {len(dear)} of {len(spent)} tests"
        )
    for nodeid in dear[:20]:
        terminalreporter.write_line(f"{spent[nodeid]:6.1f} s  {nodeid}")
    passed = terminalreporter.getreports("passed")
    on_a_gpu = any("gpu" in report.keywords for report in passed)
    on_the_stand_in = any(report.nodeid.startswith("tests/devices/test_cuda.py") for report in passed)
    if on_the_stand_in and not on_a_gpu:
        terminalreporter.write_line("CUDA: no GPU was used; it was shown by FakeCupy only (make test-gpu needs a GPU)")
