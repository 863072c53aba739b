import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import FrozenConfigDict

from pods_jax.config.schema import Config, DataConfig, ModelSection, from_mapping
from pods_jax.errors import UserError
from pods_jax.models import Decoder, ModelConfig, init_params, save_pretrained
from pods_jax.parallel import make_mesh
from pods_jax.rewards import RewardPool
from pods_jax.rollout.weights import unstacked
from pods_jax.training.prompts import load_data
from pods_jax.training.run import load_policy, make_run
from pods_jax.training.step import train_step

ADDITION = {"base": 10, "digits": 2, "carry_prob": 0.3, "num_train": 4, "num_test": 4}


def test_lora_trains_adapters_alone(tiny):
    """The optimizer's state has their size, the base keeps its precision and its values."""
    tiny.lora.rank, tiny.model.dtype = 2, "bfloat16"
    tiny.data.options = {"base": 2, "digits": 1, "num_train": 2, "num_test": 2}
    tiny.rollout.max_prompt_length = tiny.rollout.max_completion_length = 3
    tiny.rollout.num_generations = 32
    config, _ = from_mapping(tiny)
    task = load_data(config)
    with RewardPool(num_workers=1) as pool:
        run = make_run(config, task, pool, print)
        before = jax.tree.map(np.array, run.base)
        sizes = jax.tree.map(jnp.shape, run.state.params)
        for step in (1, 2):
            metrics, _ = train_step(run, step)
    assert {x.dtype for x in jax.tree.leaves(run.base)} == {jnp.dtype("bfloat16")}
    jax.tree.map(np.testing.assert_array_equal, run.base, before)
    moments = [x for x in jax.tree.leaves(run.state.opt_state) if x.ndim]
    assert len(moments) == 2 * len(jax.tree.leaves(run.state.params))
    assert jax.tree.map(jnp.shape, run.state.params) == sizes
    assert metrics["grad_norm"] > 0
    assert all((ab["b"] != 0).any() for ab in run.state.params["layers"].values())
    assert metrics["sampling/sampling_logp_difference/max"] < 0.1
    sampled = run.sampling_params()
    assert jax.tree.map(jnp.shape, sampled) == jax.tree.map(jnp.shape, unstacked(run.base))
    assert not np.array_equal(sampled["layers"][0]["q"], run.base["layers"]["q"][0])


@pytest.fixture(scope="module")
def task():
    return load_data(dataclasses.replace(Config(), data=DataConfig(options=FrozenConfigDict(ADDITION))))


@pytest.mark.parametrize("missing_rows", [0, 1])
def test_a_tokenizer_with_more_ids_than_the_embedding_has_rows_is_refused(tmp_path, task, missing_rows):
    rows = task.tokenizer.vocab_size - missing_rows
    model = Decoder(ModelConfig(rows, 8, 16, 2, 2, 1, 4))
    save_pretrained(tmp_path, model, init_params(model, jax.random.key(0)))
    config = Config(model=ModelSection(path=str(tmp_path)))
    if not missing_rows:
        assert load_policy(config, task, make_mesh(), print)[0].config == model.config
        return
    with pytest.raises(UserError, match=f"ids up to {rows}, the embedding {rows} rows"):
        load_policy(config, task, make_mesh(), print)
