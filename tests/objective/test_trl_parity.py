"""Losses and gradients against TRL's GRPOTrainer, called on the same log-probabilities."""

import collections
import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.objective import policy_loss

torch = pytest.importorskip("torch", reason="needs PyTorch")
grpo_trainer = pytest.importorskip("trl.trainer.grpo_trainer", reason="needs TRL")

RNG = np.random.default_rng(0)
R, T, LIMIT = 6, 7, 11
LENGTHS = np.array([7, 2, 1, 3, 7, 5])
MASK = np.arange(T) < LENGTHS[:, None]
LOGPROBS, OLD, REF, BEHAVIOUR = (np.float32(RNG.normal(-2, 0.5, (R, T))) for _ in range(4))
ADVANTAGES = np.float32(RNG.normal(size=R))
ENTROPIES = np.float32(RNG.gamma(2.0, size=(R, T)))
DEFAULTS = {"epsilon": 0.2, "epsilon_high": 0.28, "delta": None, "beta": 0.0, "use_bias_correction_kl": True}
SAPO = {"sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05}


class OneProcess:
    """The trainer's accelerator on one process."""

    accelerator = SimpleNamespace(
        num_processes=1,
        gather=lambda x: x,
        reduce=lambda x, **kwargs: x,
        pad_across_processes=lambda x, **kwargs: x,
    )


def trainer(logprobs, loss_type, level, cap, options, quantile):
    """What `_compute_loss` reads of its trainer, with given log-probabilities in place of a model."""
    return SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (logprobs, torch.tensor(ENTROPIES), None),
        args=SimpleNamespace(**SAPO, **options, steps_per_generation=1),
        loss_type=loss_type,
        importance_sampling_level=level,
        epsilon_low=options["epsilon"],
        epsilon_high=options["epsilon_high"],
        beta=options["beta"],
        max_completion_length=LIMIT,
        use_vllm=cap is not None,
        vllm_importance_sampling_correction=True,
        top_entropy_quantile=quantile,
        get_high_entropy_mask=functools.partial(grpo_trainer.GRPOTrainer.get_high_entropy_mask, OneProcess),
        off_policy_mask_threshold=None,
        aux_loss_enabled=False,
        _entropy_bonus_enabled=False,
        current_gradient_accumulation_steps=1,
        accelerator=OneProcess.accelerator,
        model=SimpleNamespace(training=True),
        _metrics={"train": collections.defaultdict(list)},
    )


def theirs(loss_type, level, cap, options, mask=MASK, quantile=1.0):
    """TRL's loss and gradient."""
    logprobs = torch.tensor(LOGPROBS, requires_grad=True)
    ratio = torch.tensor(np.minimum(np.exp(OLD - BEHAVIOUR), cap or np.inf))
    inputs = {
        "prompt_ids": torch.zeros(R, 1, dtype=torch.long),
        "prompt_mask": torch.ones(R, 1, dtype=torch.long),
        "completion_ids": torch.zeros(R, T, dtype=torch.long),
        "completion_mask": torch.tensor(mask.astype(int)),
        "advantages": torch.tensor(ADVANTAGES),
        "old_per_token_logps": torch.tensor(OLD),
        "ref_per_token_logps": torch.tensor(REF),
        "importance_sampling_ratio": ratio,
        "num_items_in_batch": torch.tensor(mask.sum()),
    }
    fake = trainer(logprobs, loss_type, level, cap, options, quantile)
    loss = grpo_trainer.GRPOTrainer._compute_loss(fake, None, inputs)
    loss.backward()
    return loss.item(), logprobs.grad.numpy()


CASES = [
    *((loss_type, "token", None, {}) for loss_type in ("grpo", "bnpo", "dapo", "dr_grpo")),
    ("grpo", "token", None, {"beta": 0.1}),
    ("dapo", "token", None, {"beta": 0.1, "use_bias_correction_kl": False}),
    ("grpo", "sequence", None, {"beta": 0.1}),
    ("sapo", "token", None, {}),
    ("sapo", "sequence", None, {"beta": 0.1}),
    ("grpo", "token", None, {"epsilon": 0.1, "delta": 1.5}),
    ("grpo", "sequence", None, {"epsilon": 0.03, "epsilon_high": 0.04}),
    ("cispo", "token", None, {"epsilon_high": 1.2}),
    ("dapo", "token", 1.1, {"beta": 0.1}),
]


NAMES = {"cispo": {"surrogate": "cispo", "loss_type": "dapo"}, "sapo": {"surrogate": "sapo", "loss_type": "grpo"}}
"""TRL's one name for a surrogate and a mean over tokens."""


def assert_equal(expected, loss_type, level, cap, options, mask=MASK, policy_mask=None):
    """Our loss and gradient under TRL's options are the expected ones."""
    ours = options | {"importance_sampling_level": level, "importance_sampling_cap": cap, "loss_type": loss_type}
    ours |= NAMES.get(loss_type, {})
    ours |= {"ref_logprobs": jnp.asarray(REF), "behaviour_logprobs": jnp.asarray(BEHAVIOUR)}
    ours |= {"max_completion_length": LIMIT, "policy_mask": policy_mask}

    def loss(x):
        return policy_loss(x, jnp.asarray(OLD), jnp.asarray(ADVANTAGES), jnp.asarray(mask), **ours)[0]

    value, slope = jax.value_and_grad(loss)(jnp.asarray(LOGPROBS))
    np.testing.assert_allclose(value, expected[0], rtol=1e-5)
    np.testing.assert_allclose(slope, expected[1], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(("loss_type", "level", "cap", "options"), CASES)
def test_losses_and_gradients_are_trls(loss_type, level, cap, options):
    case = loss_type, level, cap, DEFAULTS | options
    assert_equal(theirs(*case), *case)


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dapo", "dr_grpo", "sapo"])
def test_completions_that_are_masked_whole_count_as_in_trl(loss_type):
    """`mask_truncated_completions` makes them sequences without tokens."""
    mask = MASK & (np.arange(R) != 4)[:, None]
    case = loss_type, "token", None, DEFAULTS
    assert_equal(theirs(*case, mask=mask), *case, mask=mask)


def test_only_tokens_of_high_entropy_have_a_surrogate():
    quantile = 0.4
    case = "dapo", "token", None, DEFAULTS | {"beta": 0.1}
    policy_mask = np.quantile(ENTROPIES[MASK], 1 - quantile) <= ENTROPIES
    assert_equal(theirs(*case, quantile=quantile), *case, policy_mask=jnp.asarray(policy_mask))
