"""A run whose products are in bfloat16: sampling and update agree on it, weights and files stay float32."""

import jax
import jax.numpy as jnp
import pytest

from pods_jax.config.schema import from_mapping
from pods_jax.rewards import RewardPool
from pods_jax.training.prompts import load_data
from pods_jax.training.run import make_run
from pods_jax.training.step import train_step


def dtypes(tree):
    return {str(x.dtype) for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)}


@pytest.mark.parametrize("rank", [0, 2])
def test_a_step_in_bfloat16(tiny, rank):
    tiny.model.compute_dtype, tiny.model.remat, tiny.lora.rank = "bfloat16", "full", rank
    tiny.objective.beta = 0.01  # groups of equal rewards are part of the update, too
    config, problems = from_mapping(tiny)
    assert not problems
    with RewardPool(1) as pool:
        run = make_run(config, load_data(config), pool, lambda step, loss: None)
        metrics, _ = train_step(run, 1)
    assert dtypes(run.sampling_params()) == {"bfloat16"}
    assert dtypes(run.policy_params()) == dtypes(run.state) == {"float32"}
    assert metrics["sampling/sampling_logp_difference/max"] < 0.1  # logits of about 4, which bfloat16 resolves to 0.02
