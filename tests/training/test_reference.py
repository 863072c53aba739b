"""The reference policy: the KL to it in the reward, and a reference that follows the policy."""

import dataclasses
import re
import shutil
import types
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.analysis.runs import read_run
from pods_jax.config.schema import from_mapping
from pods_jax.config.validate import violations
from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.parallel import make_mesh
from pods_jax.rewards import RewardPool
from pods_jax.rollout import token_logprobs
from pods_jax.training import Reporter, train
from pods_jax.training.prompts import load_data
from pods_jax.training.reference import make_scorer, penalised
from pods_jax.training.run import make_run
from pods_jax.training.step import collect_groups, train_step


@pytest.fixture
def config(tiny):
    tiny.objective.beta, tiny.objective.kl_penalty = 0.25, "reward"
    tiny.training.num_steps, tiny.training.eval_every_steps = 3, 0
    config, problems = from_mapping(tiny)
    assert not problems
    return config


def row_logprobs(run, params, group):
    """[n, T], of rows of prompt and completion, in float64."""
    prompt, (n, T) = group.request.prompt.tokens, group.tokens.shape
    rows = jnp.asarray(np.concatenate([np.tile(np.int32(prompt), (n, 1)), group.tokens], axis=1))
    sizes = jnp.full(n, len(prompt)), jnp.asarray(group.lengths)
    return np.float64(token_logprobs(run.model, params, rows, *sizes, max_completion_length=T))


def first_rollouts(group, count):
    arrays = ("tokens", "logprobs", "lengths", "truncated", "rewards", "correct", "policy_versions")
    return dataclasses.replace(group, **{name: getattr(group, name)[:count] for name in arrays})


@pytest.mark.parametrize("micro_batch_size", [None, 2])
def test_the_penalty_is_beta_times_the_summed_difference_of_log_probabilities(config, micro_batch_size):
    """Scored all at once, and two rollouts at a time, which are half a group of those kept."""
    optimizer = dataclasses.replace(config.optimizer, micro_batch_size_per_device=micro_batch_size)
    config = dataclasses.replace(config, optimizer=optimizer)
    with RewardPool(1) as pool:
        run = make_run(config, load_data(config), pool, lambda *_: None)
        groups, _ = collect_groups(run, 1)
    groups = [groups[0], *(first_rollouts(group, 5) for group in groups[1:3])]  # of unequal sizes
    other = jax.tree.map(
        lambda x: x + 0.1 * jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape), run.ref_params
    )
    run = dataclasses.replace(run, ref_params=other)
    assert len({length for group in groups for length in group.lengths.tolist()}) > 1
    for group, got in zip(groups, penalised(run.config, groups, run.scorer, other, run.mesh), strict=True):
        ratio = row_logprobs(run, run.state.params, group) - row_logprobs(run, other, group)
        kl = np.array([row[:length].sum() for row, length in zip(ratio, group.lengths, strict=True)])
        assert np.abs(kl).max() > 1e-2
        np.testing.assert_allclose(got.parts["kl"], kl, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(got.rewards, group.rewards - 0.25 * kl, rtol=1e-4, atol=1e-5)
        assert got.correct is group.correct
        assert got.parts["correctness"] is group.parts["correctness"]


def test_a_run_takes_the_kl_off_the_reward_and_not_the_loss(config, tmp_path):
    train(config, tmp_path / "run", Reporter())
    first, *_, last = metrics = read_run(tmp_path / "run").metrics
    for m in metrics:
        assert m["reward"] == pytest.approx(m["accuracy"] - 0.25 * m["rewards/kl/mean"], abs=1e-5)
        assert "kl" not in m
    assert abs(first["rewards/kl/mean"]) < 1e-4  # the policy is still the reference
    assert abs(last["rewards/kl/mean"]) > 1e-4


def test_no_more_is_scored_at_a_time_than_a_micro_batch(config):
    """Memory of the program, beside its result, follows the micro-batch."""

    def temporaries(micro_batch_size):
        optimizer = dataclasses.replace(config.optimizer, micro_batch_size_per_device=micro_batch_size)
        model, mesh = Decoder(ModelConfig(32, 64, 256, 2, 4, 2, 16)), make_mesh(1, 1, 1, jax.devices()[:1])
        params = jax.eval_shape(lambda: init_params(model, jax.random.key(0)))
        rollouts = [jax.ShapeDtypeStruct(shape, "int32") for shape in ((32, 8), (32,), (32, 4, 16))]
        scorer = make_scorer(dataclasses.replace(config, optimizer=optimizer), model, mesh)
        program = scorer.lower(params, *rollouts).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert temporaries(4) < temporaries(None) / 8


# ---------------------------------------------------------------- a reference that follows the policy


def test_the_reference_follows_the_policy_as_in_trl(tiny):
    """Two updates a step, a synchronisation after every three: after the first of step 2, and the last of step 3."""
    torch = pytest.importorskip("torch", reason="the extra 'parity' brings torch")
    callbacks = pytest.importorskip("trl.trainer.callbacks", reason="the extra 'parity' brings TRL")
    tiny.objective.beta, tiny.objective.num_iterations = 0.1, 2
    tiny.objective.sync_ref_model, tiny.objective.ref_model_sync_steps = True, 3
    config, _ = from_mapping(tiny)
    policies = []
    with RewardPool(1) as pool:
        run = make_run(config, load_data(config), pool, lambda *_: None)
        initial = np.array(run.ref_params["embed"])
        update = run.update

        def noted(*arguments):
            found = update(*arguments)
            policies.append(np.array(found[0].params["embed"]))
            return found

        run.update = noted
        for step in (1, 2, 3):
            train_step(run, step)
    theirs = torch.nn.Linear(1, 1, bias=False)
    policy = torch.nn.Linear(1, 1, bias=False)
    theirs.weight.data = torch.tensor(initial)
    callback = callbacks.SyncRefModelCallback(theirs, None)
    alpha = config.objective.ref_model_mixup_alpha
    arguments = types.SimpleNamespace(ref_model_sync_steps=3, ref_model_mixup_alpha=alpha)
    for step, weights in enumerate(policies, start=1):
        policy.weight.data = torch.tensor(weights)
        with mock.patch.object(callback, "sync_target_model", callback._sync_target_model):
            callback.on_step_end(arguments, types.SimpleNamespace(global_step=step), None, model=policy)
    assert np.abs(theirs.weight.detach().numpy() - initial).max() > 1e-3
    np.testing.assert_allclose(run.ref_params["embed"], theirs.weight.detach().numpy(), rtol=1e-5, atol=1e-7)


def test_a_reference_that_follows_is_in_the_checkpoint(tiny, tmp_path):
    """A run that goes on from step 4 ends as one that was never stopped."""
    tiny.objective.beta, tiny.objective.sync_ref_model, tiny.objective.ref_model_sync_steps = 0.1, True, 2
    config, _ = from_mapping(tiny)
    train(config, tmp_path / "run", Reporter())
    whole = untimed(read_run(tmp_path / "run").metrics[-1])
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "6")
    train(config, tmp_path / "run", Reporter())
    assert untimed(read_run(tmp_path / "run").metrics[-1]) == whole
    assert whole["kl"] > 0


def untimed(record):
    return {name: value for name, value in record.items() if "time" not in name}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beta": 0.0}, "no reference to synchronise"),
        ({"lora": 2}, "under LoRA the reference is the frozen base"),
        ({"ref_model_sync_steps": 0}, "ref_model_sync_steps must be positive"),
        ({"ref_model_mixup_alpha": 0.0}, r"must lie in \(0, 1\]"),
        ({"ref_model_mixup_alpha": 1.5}, r"must lie in \(0, 1\]"),
    ],
)
def test_what_makes_no_sense_with_it_is_refused(tiny, changes, message):
    tiny.objective.beta, tiny.objective.sync_ref_model = 0.1, True
    tiny.lora.rank = changes.get("lora", 0)
    tiny.objective.update({name: value for name, value in changes.items() if name != "lora"})
    assert any(re.search(message, problem) for problem in violations(from_mapping(tiny)[0]))
