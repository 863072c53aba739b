"""The notebooks as files: clean, and of one form. CI executes them (PODS_JAX_QUICK=1 pytest --nbmake notebooks)."""

import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "notebooks").glob("*.ipynb"))
NAMES = [
    "01_asymmetry", "02_pods_main", "03_rollouts_n_and_m", "04_selection_rules", "05_pilot_commit", "06_your_own_rule",
]  # fmt: skip


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


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_holds_nothing_that_a_kernel_wrote(file):
    notebook = json.loads(file.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"].keys() == {"kernelspec", "language_info"}
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_is_valid(file):
    nbformat = pytest.importorskip("nbformat", reason="the extra 'notebooks' brings it")
    nbformat.validate(nbformat.read(file, as_version=4))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_asks_and_answers(file):
    text = cells(file, "markdown")
    assert re.match(rf"# {file.stem[:2]} · [^\n]+\?\n", text[0])
    assert sum(cell.startswith("## Answer") for cell in text) == 1


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_uses_what_is_public(file):
    assert not [name for code in cells(file, "code") for name in private_names(code)]


def test_private_names_are_found():
    assert list(private_names("from a._b import c")) == ["_b"]
    assert list(private_names("from a import _b, c\nimport a.b._c")) == ["_b", "_c"]
    assert list(private_names("x = a.b._c(1)")) == ["_c"]
    assert not list(private_names("from a import b\nb.c, _ = 1, 2"))
