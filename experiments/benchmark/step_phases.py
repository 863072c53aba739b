"""Seconds, rates and growth of the phases of a step, for an experiment's model and sizes, at full length."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmark.machine import matmul_flops_per_s, median_seconds
from pods_jax.buckets import pad_prompts
from pods_jax.config.schema import Config, LoraConfig
from pods_jax.learner import Batch
from pods_jax.models.decoder import ModelConfig
from pods_jax.planning import flops
from pods_jax.rewards import RewardPool
from pods_jax.rollout import Completions, generate, group_logprobs
from pods_jax.training.prompts import load_data
from pods_jax.training.run import Run, make_run


class Sizes(NamedTuple):
    """P prompts of S tokens, n completions of T tokens each, m of them trained on."""

    P: int
    n: int
    m: int
    S: int
    T: int


GROWN = ("n", "m", "T")
"""The sizes whose growth is measured."""


@contextlib.contextmanager
def started(config: Config) -> Iterator[Run]:
    """A run of an experiment at its first step, without a workdir."""
    data = load_data(config)
    with RewardPool(num_workers=config.reward.num_workers) as pool:
        yield make_run(config, data, pool, lambda step, loss: None)


def config_sizes(run: Run) -> Sizes:
    r = run.config.rollout
    return Sizes(
        r.num_prompts, r.num_generations, run.config.selection.num_kept, r.max_prompt_length, r.max_completion_length
    )


def measure(run: Run, sizes: Sizes, repeats: int) -> dict[str, float]:
    """Median seconds by phase; decoding is the time of a generation beyond its prefill and first token."""
    params = run.sampling_params()
    prompts = run.stream.next(sizes.P)
    sample = functools.partial(_generate, run, params, [p.tokens for p in prompts], sizes)
    completions = jax.device_get(sample(sizes.T))
    prefill_s = median_seconds(lambda: sample(1), repeats)
    generate_s = median_seconds(lambda: sample(sizes.T), repeats)
    block = min(sizes.m, run.config.optimizer.micro_batch_size_per_device or sizes.m)
    batch = _batch([p.tokens for p in prompts], completions, sizes.m, block)
    return {
        "prefill": prefill_s,
        "decode": generate_s - prefill_s,
        "verify": median_seconds(lambda: run.rewarder(completions, prompts).rewards, repeats),
        "score": median_seconds(functools.partial(_score(run), run.policy_params(), batch), repeats),
        "update": median_seconds(_updates(run, batch), repeats),
        "sync": median_seconds(run.sampling_params, repeats),
    }


def _generate(run: Run, params: Any, prompts: list[tuple[int, ...]], sizes: Sizes, T: int) -> Completions:
    return generate(run.model, params, prompts, num_generations=sizes.n, max_new_tokens=T, key=jax.random.key(0))


def _batch(prompts: list[tuple[int, ...]], completions: Completions, m: int, block: int) -> Batch:
    """The first m completions of each group (again from the start where there are fewer), in blocks as in training."""
    index = np.arange(m) % completions.lengths.shape[1]
    tokens, lengths = (padded[: len(prompts)].repeat(m // block, 0) for padded in pad_prompts(prompts))

    def blocks(x: np.ndarray) -> np.ndarray:
        return x[:, index].reshape(-1, block, *x.shape[2:])

    return jax.tree.map(
        jnp.asarray,
        Batch(
            prompts=tokens,
            prompt_lengths=lengths,
            completions=blocks(completions.tokens),
            lengths=blocks(completions.lengths),
            advantages=np.ones((len(tokens), block), np.float32),
            behaviour_logprobs=blocks(completions.logprobs),
        ),
    )


def _score(run: Run) -> Callable[[Any, Batch], Any]:
    scores = jax.jit(group_logprobs, static_argnums=0)
    return lambda params, b: scores(run.model, params, b.prompts, b.prompt_lengths, b.completions)


def _updates(run: Run, batch: Batch) -> Callable[[], Any]:
    """Each call is an update of the run's state."""

    def update():
        run.state, metrics, _ = run.update(run.state, batch, run.base)
        return run.state, metrics

    return update


def table_rows(run: Run, sizes: Sizes, seconds: dict[str, float]) -> list[dict[str, Any]]:
    """Seconds, tokens a second, FLOPs a second and their share of a measured matrix product's rate.

    The FLOPs of an update are those without recomputation.
    """
    tokens = phase_tokens(sizes)
    work = phase_flops(run.model.config, sizes)
    peak = matmul_flops_per_s(run.config.model.compute_dtype or run.config.model.dtype)
    rows = []
    for phase, phase_s in seconds.items():
        row = {"phase": phase, "seconds": phase_s}
        if phase in tokens:
            row["tokens_per_s"] = tokens[phase] / phase_s
        if phase in work:
            row |= {"flops_per_s": work[phase] / phase_s, "of_peak": work[phase] / phase_s / peak}
        rows.append(row)
    return rows


def phase_tokens(sizes: Sizes) -> dict[str, int]:
    """Tokens that each phase goes through."""
    P, n, m, S, T = sizes
    return {"prefill": P * S, "decode": P * n * (T - 1), "verify": P * n * T, "score": P * m * T, "update": P * m * T}


def phase_flops(c: ModelConfig, sizes: Sizes) -> dict[str, int]:
    """Arithmetic of each phase; the prefill's includes the first token, as its time does."""
    P, n, m, S, T = sizes
    first = flops.decode_flops(c, P * n, S, 1, cached=0)
    return {
        "prefill": flops.prefill_flops(c, P, S) + first,
        "decode": flops.decode_flops(c, P * n, S, T, cached=(T - 1) * T) - first,
        "score": flops.scoring_flops(c, P, m, S, T, LoraConfig()),
        "update": flops.model_update_flops(c, P, m, S, T),
    }


def growth(run: Run, sizes: Sizes, repeats: int) -> list[dict[str, Any]]:
    """For each of n, m and T: the exponent a in seconds ~ size^a, by phase, fitted from a half to twice the size."""
    rows = []
    for axis in GROWN:
        usual = getattr(sizes, axis)
        values = [max(usual * factor // 2, 2) for factor in (1, 2, 4)]
        measured = [measure(run, sizes._replace(**{axis: value}), repeats) for value in values]
        rows.append({"size": axis, **{phase: exponent(values, [s[phase] for s in measured]) for phase in measured[0]}})
    return rows


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """The slope of log seconds over log sizes, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(seconds, 1e-9)), 1)[0])
