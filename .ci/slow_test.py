"""Prints the slow test of the day: python .ci/slow_test.py < IDS, where IDS are lines of `pytest --collect-only`."""

import datetime
import sys

cases: dict[str, list[str]] = {}
for line in sys.stdin:
    if "::" in line:
        cases.setdefault(line.partition("[")[0].strip(), []).append(line.strip())
day = datetime.date.today().toordinal()
of_the_day = cases[sorted(cases)[day % len(cases)]]
print(of_the_day[day // len(cases) % len(of_the_day)])
