"""This package's side of the comparisons of updates and steps."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmark.contenders import Repetition
from benchmark.workload import digits
from pods_jax.config.schema import Config, ObjectiveConfig, OptimizerConfig, default_config, from_mapping
from pods_jax.data import Dataset, Example
from pods_jax.data.tokenizers import load_tokenizer
from pods_jax.learner import Batch, init_state, make_optimizer, make_update
from pods_jax.models import load_pretrained
from pods_jax.parallel import make_mesh
from pods_jax.rewards import RewardPool
from pods_jax.training.prompts import RunData, TokenisedExamples
from pods_jax.training.run import make_run
from pods_jax.training.step import train_step


def update(options: dict[str, Any]) -> Repetition:
    """One optimizer step on rows of prompt and completion, at most `rows_a_prompt` of them for each prompt."""
    model, params = load_pretrained(options["folder"])
    model = model.clone(remat=options["remat"])
    optimizer = make_optimizer(OptimizerConfig(), num_steps=1000)
    mesh = make_mesh(1, 1, 1)
    state = init_state(model, params, optimizer, mesh)
    T = options["new_tokens"]
    step = make_update(
        model, optimizer, ObjectiveConfig(), temperature=1.0, micro_batch_size=options["micro_batch_size"],
        chunk_size=None, max_completion_length=T, mesh=mesh,
    )  # fmt: skip
    block = min(options["rows_a_prompt"], options["micro_batch_size"] or options["rows"])
    batch = random_batch((options["rows"] // block, block), options["prompt_tokens"], T, model.config.vocab_size)
    del params

    def repetition() -> int:
        nonlocal state
        state, metrics, _ = step(state, batch)
        jax.block_until_ready((state, metrics))
        return options["rows"] * (options["prompt_tokens"] + T)

    return repetition


def random_batch(shape: tuple[int, int], S: int, T: int, vocab_size: int) -> Batch:
    """P groups of m completions, all of full length."""
    rng = np.random.default_rng(0)
    P, m = shape
    return Batch(
        prompts=jnp.asarray(rng.integers(3, vocab_size, (P, S)), jnp.int32),
        prompt_lengths=jnp.full(P, S, jnp.int32),
        completions=jnp.asarray(rng.integers(3, vocab_size, (P, m, T)), jnp.int32),
        lengths=jnp.full((P, m), T, jnp.int32),
        advantages=jnp.asarray(rng.normal(size=(P, m)), jnp.float32),
        behaviour_logprobs=jnp.zeros((P, m, T)),
    )


def step(options: dict[str, Any]) -> Repetition:
    """A whole training step on one prompt: n completions, m of them trained on."""
    config = step_config(options)
    run = make_run(config, digit_data(options), RewardPool(1), lambda step, loss: None)
    steps = iter(range(1, 1_000_000))

    def repetition() -> int:
        before = run.totals["tokens/generated"]
        train_step(run, next(steps))
        jax.block_until_ready(run.state)
        return int(run.totals["tokens/generated"] - before)

    return repetition


def step_config(options: dict[str, Any]) -> Config:
    """One prompt, n completions, m of them trained on; rewards by chance."""
    c = default_config()
    c.update_from_flattened_dict(
        {
            "model.path": options["folder"],
            "model.remat": options["remat"],
            "rollout.num_prompts": 1,
            "rollout.num_generations": options["n"],
            "selection.num_kept": options["m"],
            "rollout.max_prompt_length": options["prompt_tokens"],
            "rollout.max_completion_length": options["new_tokens"],
        }
    )
    c.reward.parts = {"luck": 1.0}
    c.reward.functions = {"luck": "benchmark.workload:reward"}
    return from_mapping(c)[0]


def digit_data(options: dict[str, Any]) -> RunData:
    """Prompts of digits whose golds no completion equals."""
    tokenizer = load_tokenizer(options["folder"])
    examples = tuple(Example(digits(options["prompt_tokens"], seed), "-") for seed in range(64))
    tokens = tuple(tuple(tokenizer.encode_prompt(e.prompt)) for e in examples)
    tokenised = TokenisedExamples(examples, tokens, 0)
    return RunData(Dataset(examples, examples, task="exact"), tokenizer, tokenised, tokenised)
