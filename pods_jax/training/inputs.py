"""Fingerprints of the data and the weights that a run reads, so that a later life notices what was replaced."""

import hashlib
import json
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from pods_jax.config.schema import Config
from pods_jax.data import Example
from pods_jax.errors import UserError
from pods_jax.models.loading import weights_fingerprint
from pods_jax.models.peft_adapter import WEIGHTS
from pods_jax.training import warm_start
from pods_jax.training.prompts import RunData, TokenisedExamples

TRAIN = "the training problems"
TEST = "the test problems"
FROZEN = ("the model's weights", "the adapter to start from")
"""Names of the fingerprints of weights that a run needs again in each of its lives."""

Fingerprints = Mapping[str, str]


def fingerprints(config: Config, data: RunData) -> dict[str, str]:
    """A hash of each thing that a run reads anew in each of its lives, by its name in messages.

    Of data, all that was read is hashed: prompts as token ids (so tokenizer and chat template are part of it), golds
    and columns, in their order; not the files, which may move. Weights have a part only where a life begins with them
    again, under LoRA and for a KL to the initial policy; they are hashed by samples (see `models.tensors.fingerprint`).
    """
    found = {TRAIN: _of_examples(data.train), TEST: _of_examples(data.test)}
    found |= {f"the problems of evaluation.sets.{name}": _of_examples(x) for name, x in data.others.items()}
    o = config.objective
    needed = config.lora.rank or (o.beta and not o.sync_ref_model)
    return found | (_of_weights(config, data) if needed else {})


def refuse_replaced(theirs: Fingerprints, ours: Fingerprints, config: Config, names: Container[str] | None = None):
    """Compares the fingerprints of a checkpoint with those of this life.

    names: those to compare; None: all that both have.

    Raises:
      UserError: one differs, and training.allow_replaced_inputs is False.
    """
    shared = [name for name in ours if name in theirs and (names is None or name in names)]
    replaced = [name for name in shared if ours[name] != theirs[name]]
    if replaced and not config.training.allow_replaced_inputs:
        raise UserError(
            f"{' and '.join(_placed(config, name) for name in replaced)}: not what this run began with; put it back, "
            "or choose another --workdir (training.allow_replaced_inputs = True goes on with what is there now)"
        )


def _placed(config: Config, name: str) -> str:
    """The name with the path that the config gives for it, if there is one."""
    paths = {TRAIN: config.data.path, TEST: config.data.eval_path or config.data.path, **_frozen_paths(config)}
    return f"{name} in {paths[name]}" if paths.get(name) else name


def _frozen_paths(config: Config) -> dict[str, str | None]:
    return dict(zip(FROZEN, (config.model.path, config.lora.path), strict=True))


def _of_examples(tokenised: TokenisedExamples) -> str:
    digest = hashlib.sha256()
    for example, tokens in zip(tokenised.examples, tokenised.tokens, strict=True):
        digest.update(json.dumps([*_content(example), tokens], skipkeys=True, default=_kind).encode() + b"\n")
    return digest.hexdigest()


def _content(example: Example) -> tuple[Any, ...]:
    return example.prompt, example.gold, example.kind, example.earlier, example.columns


def _kind(value: Any) -> str:
    """Stands for a value that JSON lacks; its text may name an address in memory."""
    return type(value).__name__


def _of_weights(config: Config, data: RunData) -> dict[str, str]:
    found = {}
    if config.model.path:
        found[FROZEN[0]] = weights_fingerprint(config.model.path)
    elif config.warm_start.num_steps:
        found[FROZEN[0]] = warm_start.fingerprint(config, data.dataset)
    if config.lora.path:
        file = Path(config.lora.path).expanduser() / WEIGHTS
        found[FROZEN[1]] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found
