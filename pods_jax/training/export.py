"""A trained policy as files that other tools load."""

from pathlib import Path

from pods_jax.config import Config
from pods_jax.data.tokenizers import HFTokenizer
from pods_jax.folders import writing
from pods_jax.models import save_pretrained
from pods_jax.models.lora import merge
from pods_jax.models.peft_adapter import save_adapter
from pods_jax.training.export_folder import mark, refuse_folder
from pods_jax.training.progress import Reporter
from pods_jax.training.restore import restored_run


def export_checkpoint(
    config: Config, workdir: str | Path, out: str | Path, reporter: Reporter, checkpoint: str = "newest"
) -> None:
    """Writes a checkpoint of a workdir as a Hugging Face folder, its tokenizer included where it has one.

    checkpoint: "newest", "best" or a step.

    Adapters are merged into the weights (as dequantised, where they were quantised); `out/adapter` holds them apart, in
    PEFT's format.

    Raises:
      UserError: the workdir holds no checkpoint, or was made by another config; `out` holds anything but an earlier
        export of this workdir, or cannot be written.
    """
    out, workdir = Path(out), Path(workdir)
    refuse_folder(out, workdir)
    with restored_run(config, workdir, reporter, checkpoint=checkpoint) as run, writing(out, "--out"):
        tokenizer = run.task.tokenizer
        files = tokenizer if isinstance(tokenizer, HFTokenizer) else None
        mark(out, workdir)
        save_pretrained(out, run.model, merge(run.policy_params()), tokenizer=files)
        if run.base is not None:
            save_adapter(out / "adapter", run.state.params, config.lora, config.model.path)
    reporter.message(f"outputs  {out}: config.json, safetensors" + (", adapter/" if config.lora.rank else ""))
