"""A plugin of pytest, by which one of the tests marked slow runs with the others, each day another one.

PYTHONPATH=.ci pytest -p slow_test
"""

import datetime
import os

import pytest


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("PODS_JAX_DAY", str(datetime.date.today().toordinal()))  # the same in all workers


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Takes the mark off one test: a test function each day, and its next case when all have had their turn."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if any(mark.name == "slow" for mark in item.own_markers):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    day = int(os.environ["PODS_JAX_DAY"])
    of_the_day = cases[sorted(cases)[day % len(cases)]]
    item = of_the_day[day // len(cases) % len(of_the_day)]
    item.own_markers = [mark for mark in item.own_markers if mark.name != "slow"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"the slow test of day {os.environ['PODS_JAX_DAY']} was among them")
