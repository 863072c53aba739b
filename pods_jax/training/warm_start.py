"""Supervised warm start on a data set's demonstrations, cached by content."""

import functools
import hashlib
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import optax
from safetensors.numpy import load_file, save_file

from pods_jax.cache import cache_folder
from pods_jax.config.schema import Config, OptimizerConfig, WarmStartConfig, to_dict
from pods_jax.data.examples import Dataset
from pods_jax.data.tokenizers import CharTokenizer
from pods_jax.learner.logprobs import project
from pods_jax.learner.optimizer import make_optimizer
from pods_jax.models import attention, decoder
from pods_jax.models.decoder import Decoder, Params, init_params

STEPS_PER_CALL = 50
OnStep = Callable[[int, float | None], None]
"""Gets (steps done, loss) every STEPS_PER_CALL steps, or once (all steps, None) where the cache answers."""


def warm_started_params(
    config: Config, model: Decoder, dataset: Dataset, tokenizer: CharTokenizer, on_step: OnStep
) -> Params:
    """Trained parameters (numpy, float32), from the cache where the same warm start was made before."""
    path = cache_folder("warm_starts") / f"{fingerprint(config, dataset)}.safetensors"
    template = jax.eval_shape(functools.partial(init_params, model), jax.random.key(0))
    if path.is_file():
        on_step(config.warm_start.num_steps, None)
        flat = load_file(path)
        return jax.tree_util.tree_map_with_path(lambda p, _: flat[jax.tree_util.keystr(p)], template)
    params = jax.tree.map(np.asarray, train(config.warm_start, model, dataset, tokenizer, on_step))
    _save(path, {jax.tree_util.keystr(p): x for p, x in jax.tree_util.tree_leaves_with_path(params)})
    return params


def fingerprint(config: Config, dataset: Dataset) -> str:
    """A hash of what decides the result: configs, the code of model, loss, optimizer, data, this file; the backend."""
    made_by = (
        attention,
        decoder,
        *map(inspect.getmodule, (project, make_optimizer, dataset.demonstrate)),
        sys.modules[__name__],
    )
    content = {
        "sections": [to_dict(s) for s in (config.model, config.data, config.warm_start)],
        "code": [inspect.getsource(module) for module in made_by],
        "backend": [jax.__version__, jax.default_backend()],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


def _save(path: Path, flat: dict[str, np.ndarray]) -> None:
    """Writes whole or not at all, also when several runs make the same warm start at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    os.close(handle)
    save_file(flat, name)
    os.replace(name, path)


def train(c: WarmStartConfig, model: Decoder, dataset: Dataset, tokenizer: CharTokenizer, on_step: OnStep) -> Params:
    """Parameters after c.num_steps of next-token training on demonstrations; only completions are in the loss."""
    optimizer = make_optimizer(_optimizer_config(c), c.num_steps)
    params = init_params(model, jax.random.key(c.seed))
    state = optimizer.init(params)
    rng = np.random.default_rng([c.seed, 1])
    for start in range(0, c.num_steps, STEPS_PER_CALL):
        steps = min(STEPS_PER_CALL, c.num_steps - start)
        tokens, targets = encode_demonstrations(dataset.demonstrate(rng, steps * c.batch_size), tokenizer)
        shape = (steps, c.batch_size, -1)
        params, state, loss = _run(model, optimizer, params, state, tokens.reshape(shape), targets.reshape(shape))
        on_step(start + steps, float(loss))
    return params


def _optimizer_config(c: WarmStartConfig) -> OptimizerConfig:
    return OptimizerConfig(
        learning_rate=c.learning_rate,
        warmup_steps=c.warmup_steps,
        lr_scheduler_type="warmup_stable_decay",
        decay_fraction=0.4,
    )


def encode_demonstrations(pairs: list[tuple[str, str]], tokenizer: CharTokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Token rows [N, U] of prompt, completion, end; and which of them are targets (completion and end)."""
    rows = [(tokenizer.encode(prompt), [*tokenizer.encode(answer), tokenizer.eos_ids[0]]) for prompt, answer in pairs]
    tokens = np.full((len(rows), max(len(p) + len(a) for p, a in rows)), tokenizer.pad_id, np.int32)
    targets = np.zeros(tokens.shape, bool)
    for i, (prompt, answer) in enumerate(rows):
        tokens[i, : len(prompt) + len(answer)] = prompt + answer
        targets[i, len(prompt) : len(prompt) + len(answer)] = True
    return tokens, targets


@functools.partial(jax.jit, static_argnames=("model", "optimizer"), donate_argnames=("params", "state"))
def _run(model, optimizer, params, state, tokens, targets):
    def loss(params, tokens, targets):
        hidden = model.apply({"params": params}, tokens[:, :-1], method="hidden")
        scores = project(hidden, params, tokens[:, 1:], 1.0, None)
        weights = targets[:, 1:]
        return -(scores.logprobs * weights).sum() / weights.sum()

    def step(carry, batch):
        params, state = carry
        value, grads = jax.value_and_grad(loss)(params, *batch)
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    (params, state), losses = jax.lax.scan(step, (params, state), (tokens, targets))
    return params, state, losses[-10:].mean()
