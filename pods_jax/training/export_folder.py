"""The folder of an export: which ones are refused, and the mark that tells which workdir its files are from."""

import json
from pathlib import Path

from pods_jax.errors import UserError
from pods_jax.folders import refuse_unwritable
from pods_jax.training.workdir import is_workdir

MARK = "exported_from.json"


def refuse_folder(out: Path, workdir: Path) -> None:
    """Raises a UserError unless `out` is absent, empty, or an earlier export of the workdir; never within a workdir."""
    refuse_unwritable(out, "--out")
    own = workdir.resolve()
    for place in (out.resolve(), *out.resolve().parents):
        if place == own or is_workdir(place):
            raise UserError(f"--out {out} is, or lies in, the workdir {place}; choose a folder outside of it")
    if out.is_dir() and any(out.iterdir()) and source(out) != str(own):
        raise UserError(f"--out {out} holds files that are no export of workdir {workdir}; choose an empty folder")


def source(out: Path) -> str | None:
    """The workdir that a folder was exported from; None if it bears no mark."""
    try:
        return json.loads((out / MARK).read_text(encoding="utf-8"))["workdir"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def mark(out: Path, workdir: Path) -> None:
    """Makes the folder an export of the workdir, before its other files are written."""
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).write_text(json.dumps({"workdir": str(workdir.resolve())}) + "\n", encoding="utf-8")
