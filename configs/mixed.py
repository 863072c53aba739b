"""Prompts of mixed difficulty, to compare allocators: some are solved already, some can be learnt, some never.

    python experiments/train.py --config configs/mixed.py:pilot_commit --workdir runs/mixed/pilot_commit

Two in five prompts are subtractions, which the warm start never shows and which are never right. Half of the sums have
no carry, and are right from the start. The other sums are right the more rarely, the more carries they have. So
accuracy begins at about 35 % and ends below 60 %.

The arguments differ only in allocation and selection: `:grpo`, `:dapo` (dynamic sampling), `:pilot_commit`, `:pods` and
`:pilot_commit_pods`. All groups have n = 32 rollouts. `:grpo` and `:pods` generate 512 rollouts a step, `:dapo` 1,536 a
round, and the other two 768 a round: the proportions of Pilot-Commit's authors (Kim et al. 2026, arXiv 2605.26606),
whose steps have one round. Here a step has more rounds as fewer prompts are left to learn; when none is left, the run
ends. The learning rate is constant, so that the length of a run does not affect its curve. Evaluations are frequent and
cheap, for `pods_jax.analysis.curves.rollouts_to_target`.
"""

from ml_collections import ConfigDict

from pods_jax.config import default_config
from pods_jax.config.methods import set_method, sizes

OPTIONS = {"candidates": 48, "on_exhausted": "train_partial"}  # pilots of 8 rollouts, of which 1 to 6 must be right
GRPO_LOSS = {  # the same loss as the others, since only the allocation is compared
    "objective.loss_type": "grpo", "objective.epsilon_high": None, "objective.mask_truncated_completions": False
}  # fmt: skip
METHODS = {
    "pilot_commit": {"allocation.options": OPTIONS} | sizes(32, 32),
    "grpo": sizes(32, 32),
    "dapo": {"allocation.options": OPTIONS} | GRPO_LOSS | sizes(32, 32),
    "pods": sizes(32, 8),
    "pilot_commit_pods": {"allocation.options": OPTIONS} | sizes(32, 8),
}


def get_config(argument: str = "pilot_commit") -> ConfigDict:
    c = default_config()

    # Data: 5-digit decimal addition, and subtraction that no demonstration shows.
    c.data.name = "addition"
    c.data.options = {
        "base": 10, "digits": 5, "carry_prob": 0.4, "num_train": 6000, "num_test": 512, "unseen_fraction": 0.4,
        "no_carry_fraction": 0.5,
    }  # fmt: skip
    c.rollout.max_prompt_length = 11
    c.rollout.max_completion_length = 7

    # Policy: 0.2M parameters from scratch, 600 supervised steps.
    c.model.hidden_size = 96
    c.model.num_hidden_layers = 2
    c.model.intermediate_size = 256
    c.model.num_attention_heads = 4
    c.model.num_key_value_heads = 2
    c.warm_start.num_steps = 600
    c.warm_start.batch_size = 128
    c.warm_start.learning_rate = 2e-3

    # Method: three candidates for each prompt that is trained on.
    c.rollout.num_prompts = 16
    set_method(c, argument, METHODS)

    # Optimisation.
    c.optimizer.learning_rate = 5e-4
    c.optimizer.warmup_steps = 5
    c.optimizer.adam_beta2 = 0.99
    c.optimizer.micro_batch_size_per_device = 64

    c.training.num_steps = 120
    c.training.eval_every_steps = 2
    c.training.checkpoint_every_steps = 60
    c.evaluation.num_prompts = 512
    c.evaluation.num_samples = 1
    c.evaluation.batch_size = 512
    return c
