"""A trained policy as files that other tools load."""

import json
from pathlib import Path

from pods_jax.config.schema import Config
from pods_jax.errors import UserError
from pods_jax.io import PARTIAL, local_path, read_jsonl, refuse_unwritable, write_atomic, writing
from pods_jax.model_files import hub_id
from pods_jax.models.loading import own_dtype
from pods_jax.models.peft_adapter import save_adapter
from pods_jax.parallel.hosts import is_main
from pods_jax.training.checkpoint import restored_run
from pods_jax.training.model_card import model_card
from pods_jax.training.reporting import Reporter
from pods_jax.training.workdir import is_workdir


def export_checkpoint(
    config: Config, workdir: str | Path, out: str | Path, reporter: Reporter, checkpoint: str = "newest",
    dtype: str | None = None,
) -> None:  # fmt: skip
    """Writes a checkpoint of a workdir as a Hugging Face folder, its tokenizer included where it has one.

    checkpoint: "newest", "best" or a step. dtype: of the weights; None: that of the pretrained model, if there is one
    and it is not quantised, else that of the policy.

    Adapters are merged into the weights (as dequantised, where they were quantised); `out/adapter` holds them apart, in
    PEFT's format. Of several processes all must call it; the main one writes.

    Raises:
      UserError: the workdir holds no checkpoint, or was made by another config; `out` holds anything but an earlier
        export of this workdir, or cannot be written.
    """
    out = local_path(out, "--out")
    workdir = local_path(workdir, "workdir")
    refuse_folder(out, workdir)
    with restored_run(config, workdir, reporter, checkpoint) as run, writing(out, "--out"):
        if is_main():
            mark(out, workdir)
        if dtype is None and config.model.path:
            dtype = own_dtype(config.model.path)
        run.save_policy(out, dtype)
        if run.base is not None:
            base = config.model.path and (hub_id(config.model.path) or config.model.path)
            save_adapter(out / "adapter", run.state.params, config.lora, base)
        if is_main():
            card = model_card(run.config, run.version, read_jsonl(workdir / "eval.jsonl"))
            (out / CARD).write_text(card, encoding="utf-8")
    reporter.message(f"outputs  {out}: config.json, safetensors, {CARD}" + (", adapter/" if config.lora.rank else ""))


# ---------------------------------------------------------------- the folder


MARK = "exported_from.json"
CARD = "README.md"


def refuse_folder(out: Path, workdir: Path) -> None:
    """Raises a UserError unless `out` is absent, empty, or an earlier export of the workdir; never within a workdir."""
    refuse_unwritable(out, "--out")
    own = workdir.resolve()
    for place in (out.resolve(), *out.resolve().parents):
        if place == own or is_workdir(place):
            raise UserError(f"--out {out} is, or lies in, the workdir {place}; choose a folder outside of it")
    if out.is_dir() and any(out.iterdir()) and not _is_export_of(out, own):
        raise UserError(f"--out {out} holds files that are no export of workdir {workdir}; choose an empty folder")


def _is_export_of(out: Path, workdir: Path) -> bool:
    """True if the folder bears the workdir's mark, or the beginning of it, or nothing but what a kill has left."""
    try:
        return _mark(workdir).startswith((out / MARK).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return all(PARTIAL in file.name for file in out.iterdir())
    except (OSError, ValueError):
        return False


def _mark(workdir: Path) -> str:
    return json.dumps({"workdir": str(workdir.resolve())}) + "\n"


def mark(out: Path, workdir: Path) -> None:
    """Makes the folder an export of the workdir, before its other files are written."""
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / MARK, _mark(workdir))
