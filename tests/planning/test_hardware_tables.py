"""The tables of experiments/hardware.py: the documents have what the command makes of the committed numbers."""

import json
import subprocess
import sys
from pathlib import Path

import hardware
import pytest
from hardware import slices
from hardware.table import Cell, Table, fill

from pods_jax.errors import UserError

ROOT = Path(__file__).parents[2]
DOCUMENTS = {
    "attention": "docs/models.md",
    "decoding": "docs/planning.md",
    "layouts": "docs/scaling.md",
    "slices": "docs/scaling.md",
}


@pytest.mark.parametrize("name", hardware.TABLES)
def test_a_table_in_the_documents_is_that_of_its_numbers(name):
    numbers = ROOT / f"docs/planning/{name}.json"
    if not numbers.exists():
        pytest.skip(f"its numbers were not compiled yet: python experiments/hardware.py {name}")
    rows = json.loads(numbers.read_text())
    assert hardware.TABLES[name].markdown(rows) in (ROOT / DOCUMENTS[name]).read_text()
    assert f"experiments/hardware.py {name}" in (ROOT / DOCUMENTS[name]).read_text()


def test_every_config_is_in_the_table_of_slices():
    files = {str(path.relative_to(ROOT / "configs")) for path in (ROOT / "configs").rglob("*.py")}
    assert {spec.partition(":")[0] for spec in slices.CONFIGS} == files


def test_rows_that_a_file_has_are_not_compiled_again(tmp_path):
    made = []
    cells = [Cell({"model": name}, lambda name=name: made.append(name) or {"model": name}) for name in ("a", "b")]
    table = Table(lambda: cells, str)
    assert fill(table, tmp_path / "table.json", only="a") == [{"model": "a"}]
    assert fill(table, tmp_path / "table.json", only="") == [{"model": "a"}, {"model": "b"}]
    assert made == ["a", "b"]


def test_a_part_that_no_row_has_is_refused(tmp_path):
    table = Table(lambda: [Cell({"model": "a"}, dict)], str)
    with pytest.raises(UserError, match="--only b: no row has it; there are a"):
        fill(table, tmp_path / "table.json", only="b")


def test_the_command_ends_bad_input_with_one_line():
    command = [sys.executable, str(ROOT / "experiments" / "hardware.py"), "layouts", "--only", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "--only nowhere: no row has it" in done.stderr
