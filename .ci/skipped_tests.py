"""A plugin of pytest that writes the names of skipped tests into a file, so that they can be tried elsewhere.

SKIPPED_TESTS=names.txt PYTHONPATH=.ci pytest -p skipped_tests
pytest @names.txt
"""

import os
from pathlib import Path

import pytest

_names: dict[str, None] = {}


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _note(report)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _note(report)


def pytest_sessionfinish() -> None:
    """The process that starts workers hears all their reports."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        Path(os.environ["SKIPPED_TESTS"]).write_text("".join(f"{name}\n" for name in _names), encoding="utf-8")


def _note(report: pytest.CollectReport | pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _names[report.nodeid] = None
