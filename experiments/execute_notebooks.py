"""Execute the notebooks in full, and keep their outputs in them.

    python experiments/execute_notebooks.py                          # all; tens of minutes on two CPU cores
    python experiments/execute_notebooks.py 01_asymmetry             # one

Needs the extra 'notebooks'. Runs are kept under runs/notebooks, and gone on with. With its outputs a notebook keeps a
hash of its sources, so that a test tells where one was changed without the other. Bars and warnings are left out.
"""

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

from pods_jax.cli import main_with_errors
from pods_jax.errors import UserError
from pods_jax.io import write_atomic

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
WIDGET = "application/vnd.jupyter.widget-view+json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="notebooks, without .ipynb (default: all)")
    names = parser.parse_args().names or sorted(file.stem for file in FOLDER.glob("*.ipynb"))
    files = [FOLDER / f"{name}.ipynb" for name in names]
    for file in files:
        if not file.is_file():
            raise UserError(f"{file}: no such file")
    for file in files:
        print(f"executing {file.stem} ...", flush=True)
        write_atomic(file, json.dumps(executed(file), indent=1, ensure_ascii=False) + "\n")


def executed(file: Path) -> dict[str, Any]:
    """A notebook with the outputs of a run in full."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(file, as_version=4)
    before = json.loads(file.read_text(encoding="utf-8"))
    NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(FOLDER)}}).execute()
    for cell, found in zip(before["cells"], notebook.cells, strict=True):
        if cell["cell_type"] == "code":
            cell["outputs"] = joined([tidy(output) for output in found.outputs if is_kept(output)])
            cell["execution_count"] = found.execution_count
    before["metadata"]["pods_jax"] = {"sources": sources_hash(before)}
    return before


def is_kept(output: dict[str, Any]) -> bool:
    """False for bars, which tell a later reader nothing, and for what goes to stderr."""
    return output.get("name") != "stderr" and WIDGET not in output.get("data", {})


def tidy(output: dict[str, Any]) -> dict[str, Any]:
    """An output with its text as a list of lines, as a notebook's file has it, and without the text of an image."""
    output = json.loads(json.dumps(output))
    if "text" in output:
        output["text"] = "".join(output["text"]).splitlines(keepends=True)
    if "image/png" in output.get("data", {}):
        output["data"].pop("text/plain", None)
    return output


def joined(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The outputs with streams in one piece that bars had between them."""
    whole: list[dict[str, Any]] = []
    for output in outputs:
        if "text" in output and whole and whole[-1].get("name") == output["name"]:
            whole[-1] = whole[-1] | {"text": whole[-1]["text"] + output["text"]}
        else:
            whole.append(output)
    return whole


def sources_hash(notebook: dict[str, Any]) -> str:
    """A hash of a notebook's cells: their kinds and sources, in order."""
    sources = [[cell["cell_type"], "".join(cell["source"])] for cell in notebook["cells"]]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()


if __name__ == "__main__":
    main_with_errors(main)
