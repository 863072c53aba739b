"""docs/results.md says what docs/results/*.json say."""

import json
from pathlib import Path

from study.document import blocks_of

DOCS = Path(__file__).parents[2] / "docs"


def test_the_tables_of_the_document_are_those_of_the_numbers():
    results = {file.stem: json.loads(file.read_text()) for file in sorted((DOCS / "results").glob("*.json"))}
    text = (DOCS / "results.md").read_text()
    assert results
    for name, block in blocks_of(results).items():
        assert f"<!-- study:{name} -->\n{block}\n<!-- end -->" in text


def test_every_figure_of_the_document_is_there():
    text = (DOCS / "results.md").read_text()
    figures = {file.name for file in (DOCS / "results").glob("*.png")}
    assert {name for name in figures if f"(results/{name})" not in text} == set()
    assert text.count("](results/") == len(figures)
