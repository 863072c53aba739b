"""The tables of experiments/hardware.py: the documents have what the command makes of the committed numbers."""

import json
from pathlib import Path

import hardware
import pytest
from hardware import slices
from hardware.table import Cell, Table, fill

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
