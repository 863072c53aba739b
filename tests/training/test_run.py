import dataclasses
import datetime
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers
from ml_collections import FrozenConfigDict

from pods_jax.config.schema import Config, DataConfig, ModelSection, from_mapping
from pods_jax.errors import UserError
from pods_jax.models import Decoder, ModelConfig, init_params, save_pretrained
from pods_jax.models.lora import init_adapters, merge
from pods_jax.models.peft_adapter import save_adapter
from pods_jax.parallel import make_mesh
from pods_jax.rewards import RewardPool
from pods_jax.rollout.engine import Orders, SamplingParams, serving
from pods_jax.rollout.weights import unstacked
from pods_jax.training.prompts import load_data
from pods_jax.training.run import load_policy, make_run, scratch_config
from pods_jax.training.step import train_step

ADDITION = {"base": 10, "digits": 2, "carry_prob": 0.3, "num_train": 4, "num_test": 4}


def test_lora_trains_only_adapters(tiny):
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


# ---------------------------------------------------------------- what a stored model asks for


def stored(config: Config, folder) -> Config:
    """The config with its policy from scratch stored as a pretrained model of characters, one id a token."""
    tokenizer = load_data(config).tokenizer
    vocab = {"<pad>": 0, "<eos>": 1} | {c: tokenizer.encode(c)[0] for c in "0123456789+=" if c in tokenizer._ids}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, "<pad>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    backend.decoder = tokenizers.decoders.Fuse()
    backend.add_special_tokens(["<pad>", "<eos>"])
    model = Decoder(dataclasses.replace(scratch_config(config, tokenizer), vocab_size=32, max_position_embeddings=12))
    save_pretrained(folder, model, init_params(model, jax.random.key(0)))
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>", "pad_token": "<pad>"}))
    return dataclasses.replace(config, model=dataclasses.replace(config.model, path=str(folder)))


def test_prompt_and_completion_fit_the_models_context(tiny, tmp_path):
    config = stored(from_mapping(tiny)[0], tmp_path)
    data = load_data(config)
    longest = max(map(len, data.train.tokens))
    for length, allowed in ((12 - longest, False), (13 - longest, False), (13 - longest, True)):
        rollout = dataclasses.replace(config.rollout, max_completion_length=length)
        model = dataclasses.replace(config.model, allow_longer_context=allowed)
        changed = dataclasses.replace(config, rollout=rollout, model=model)
        if allowed or length + longest <= 12:
            load_policy(changed, data, make_mesh(), print)
            continue
        message = (
            rf"longest prompt has {longest} tokens and rollout\.max_completion_length .* is {length}, .*"
            r"max_position_embeddings = 12 \(model\.allow_longer_context"
        )
        with pytest.raises(UserError, match=message):
            load_policy(changed, data, make_mesh(), print)


def test_padded_rows_of_the_embedding_are_never_drawn(tiny, tmp_path):
    config = stored(from_mapping(tiny)[0], tmp_path)
    data = load_data(config)
    with RewardPool(num_workers=1) as pool:
        run = make_run(config, data, pool, print)
        orders = Orders(data.train.tokens[:4], [64] * 4, range(4), [0] * 4, jax.random.key(0))
        with serving(run.engine, 0):
            sampling = SamplingParams(config.rollout.max_completion_length, temperature=9.0)
            completions = run.engine.generate(orders, sampling)
    assert data.tokenizer.absent_ids(32)[-1].stop == 32
    drawn = {
        t
        for row, n in zip(completions.tokens.reshape(256, -1), completions.lengths.ravel(), strict=True)
        for t in row[:n]
    }
    assert len(drawn) > data.tokenizer.vocab_size // 2
    assert not any(t in ids for t in drawn for ids in data.tokenizer.absent_ids(32))


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_a_run_starts_from_an_adapter(tiny, tmp_path, beta):
    tiny.lora.rank, tiny.lora.alpha, tiny.objective.beta = 2, 6.0, beta
    config = from_mapping(tiny)[0]
    model = Decoder(scratch_config(config, load_data(config).tokenizer))
    rng = np.random.default_rng(0)
    fresh = init_adapters(model.config, config.lora, jax.random.key(0))
    adapters = jax.tree.map(lambda x: jnp.asarray(rng.normal(0, 0.3, x.shape), jnp.float32), fresh)
    save_adapter(tmp_path, adapters, config.lora)
    config = dataclasses.replace(config, lora=dataclasses.replace(config.lora, path=str(tmp_path)))
    with RewardPool(num_workers=1) as pool:
        run = make_run(config, load_data(config), pool, print)
    jax.tree.map(np.testing.assert_array_equal, run.state.params, adapters)
    if beta:  # the reference is the initial policy, adapter included
        jax.tree.map(np.testing.assert_array_equal, merge(run.ref_params), merge(run.policy_params()))


def test_prompts_keep_the_day_of_the_runs_first_life(tiny, tmp_path):
    """Day 12 and day 21 in digits that the tokenizer has."""
    config = stored(from_mapping(tiny)[0], tmp_path)
    path = tmp_path / "tokenizer_config.json"
    template = "{{ messages[-1].content }}{{ strftime_now('%d') }}"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template}))
    rollout = dataclasses.replace(config.rollout, max_prompt_length=7)
    config = dataclasses.replace(config, rollout=rollout, data=dataclasses.replace(config.data, system_role="none"))
    first, later = (load_data(config, datetime.date(2024, 2, day)) for day in (12, 21))
    assert first.train.tokens != later.train.tokens
    with RewardPool(num_workers=1) as pool:
        before, after = (make_run(config, data, pool, print) for data in (first, later))
    before.stream.next(3)
    after.load(0, before.state, before.host_state())
    assert after.data.date == datetime.date(2024, 2, 12)
    assert after.data.train.tokens == first.train.tokens
    assert after.stream.next(4) == before.stream.next(4)
