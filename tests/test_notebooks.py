"""The notebooks as files: of one form, with the outputs of their sources.

CI executes them in short (PODS_JAX_QUICK=1 pytest --nbmake notebooks); `experiments/execute_notebooks.py` does in full.
"""

import ast
import json
import re
from pathlib import Path

import pytest
from execute_notebooks import WIDGET, is_kept, joined, sources_hash, tidy

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "notebooks").glob("*.ipynb"))
NAMES = [
    "00_paper_figures", "01_asymmetry", "02_pods_main", "03_rollouts_n_and_m", "04_selection_rules", "05_pilot_commit",
    "06_your_own_rule",
]  # fmt: skip

each_notebook = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def cells(file, kind):
    return ["".join(c["source"]) for c in json.loads(file.read_text())["cells"] if c["cell_type"] == kind]


def private_names(code):
    """What a cell takes from the inside of others: imported modules and names, and attributes, with a _ in front."""
    for node in ast.walk(ast.parse(code)):
        names = []
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [part for alias in node.names for part in alias.name.split(".")]
            names += (getattr(node, "module", None) or "").split(".")
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
        yield from (name for name in names if name.startswith("_"))


def test_they_are_all_there_and_in_the_readme():
    assert [file.stem for file in FILES] == NAMES
    readme = (ROOT / "README.md").read_text()
    assert all(f"notebooks/{name}.ipynb" in readme for name in NAMES)


def outputs(notebook):
    return [output for cell in code_cells(notebook) for output in cell["outputs"]]


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


@each_notebook
def test_it_is_of_one_form(file):
    notebook = json.loads(file.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"].keys() - {"pods_jax"} == {"kernelspec", "language_info"}
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert all(cell["metadata"] == {} for cell in notebook["cells"])


@each_notebook
def test_its_outputs_are_those_of_its_sources(file):
    """All cells have run, in order, as they stand; or none has."""
    notebook = json.loads(file.read_text())
    counts = [cell["execution_count"] for cell in code_cells(notebook)]
    if "pods_jax" not in notebook["metadata"]:
        assert outputs(notebook) == []
        assert set(counts) == {None}
        return
    assert notebook["metadata"]["pods_jax"] == {"sources": sources_hash(notebook)}
    assert counts == list(range(1, len(counts) + 1))
    assert {output["output_type"] for output in outputs(notebook)} <= {"stream", "execute_result", "display_data"}
    assert all(is_kept(output) for output in outputs(notebook))
    assert all(joined(cell["outputs"]) == cell["outputs"] for cell in code_cells(notebook))
    for cell in code_cells(notebook):
        if "notebook.show(" in cell["source"][-1]:
            assert ["image/png" in output.get("data", {}) for output in cell["outputs"]][-1:] == [True], cell["source"]


def test_they_are_small():
    assert sum(file.stat().st_size for file in FILES) < 2e6


def test_a_changed_source_changes_the_hash_and_an_output_does_not():
    cells = [{"cell_type": "markdown", "source": ["a\n", "b"]}, {"cell_type": "code", "source": ["c"], "outputs": []}]
    known = sources_hash({"cells": cells})
    assert sources_hash({"cells": [{**cells[0], "source": "a\nb"}, {**cells[1], "outputs": [1]}]}) == known
    changes = ({"source": ["a\n", "d"]}, {"cell_type": "code"})
    assert all(sources_hash({"cells": [{**cells[0], **change}, cells[1]]}) != known for change in changes)
    assert sources_hash({"cells": cells[::-1]}) != known


def test_what_is_kept_of_an_output():
    assert is_kept({"output_type": "stream", "name": "stdout", "text": "a"})
    assert not is_kept({"output_type": "stream", "name": "stderr", "text": "a bar"})
    assert not is_kept({"output_type": "display_data", "data": {WIDGET: {}, "text/plain": "0%"}})
    image = {"output_type": "execute_result", "data": {"image/png": "x", "text/plain": "<Image>"}}
    assert tidy(image) == {"output_type": "execute_result", "data": {"image/png": "x"}}
    assert tidy({"text": "a\nb\n"}) == {"text": ["a\n", "b\n"]}
    a, b = ({"output_type": "stream", "name": "stdout", "text": [text]} for text in ("a\n", "b\n"))
    assert joined([a, b, image, b]) == [a | {"text": ["a\n", "b\n"]}, image, b]


@each_notebook
def test_it_is_valid(file):
    nbformat = pytest.importorskip("nbformat", reason="the extra 'notebooks' brings it")
    nbformat.validate(nbformat.read(file, as_version=4))


@each_notebook
def test_it_asks_and_answers(file):
    text = cells(file, "markdown")
    assert re.match(rf"# {file.stem[:2]} · [^\n]+\?\n", text[0])
    assert sum(cell.startswith("## Answer") for cell in text) == 1


@each_notebook
def test_it_uses_what_is_public(file):
    assert not [name for code in cells(file, "code") for name in private_names(code)]


def test_private_names_are_found():
    assert list(private_names("from a._b import c")) == ["_b"]
    assert list(private_names("from a import _b, c\nimport a.b._c")) == ["_b", "_c"]
    assert list(private_names("x = a.b._c(1)")) == ["_c"]
    assert not list(private_names("from a import b\nb.c, _ = 1, 2"))
