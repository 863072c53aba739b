"""The folder that figures go to."""

import os
from pathlib import Path

from pods_jax.errors import UserError


def refuse_unwritable(out: Path) -> None:
    """Raises a UserError if `out` is not, or cannot become, a folder that can be written to."""
    present = next(p for p in (out, *out.absolute().parents) if p.exists())
    if not (present.is_dir() and os.access(present, os.W_OK)):
        raise UserError(f"no figures can go to {out}: {present} is not a folder that can be written to")
