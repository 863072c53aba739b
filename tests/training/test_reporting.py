"""Messages go to whoever still reads them, and are text."""

import subprocess
import sys

from pods_jax.training import Reporter

TALKS = """
import sys, time
from pods_jax.training import Reporter

reporter = Reporter()
sys.stdin.readline()  # by now nobody reads
for _ in reporter.steps(range(3), 0):
    reporter.message("a line " * 2000)
open(sys.argv[1], "w").write("done")
"""


def test_a_reader_that_goes_away_stops_nothing(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", TALKS, str(tmp_path / "end")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    process.stdout.close()
    process.stdin.write(b"\n")
    process.stdin.close()
    assert process.wait(timeout=120) == 0
    assert (tmp_path / "end").read_text() == "done"


def test_text_of_users_is_no_markup(capsys):
    Reporter().message("runs/[red]x[/red] :smile: [/]")
    assert capsys.readouterr().out == "runs/[red]x[/red] :smile: [/]\n"
