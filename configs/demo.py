"""The embedded demo: a tiny policy learns addition from verified rewards, offline, in about a minute on two CPU cores.

    python experiments/train.py --config configs/demo.py --workdir runs/demo

The arguments differ only in n, m and the rule: `:pods` (default; n = 64, m = 16, max_variance), `:grpo` (n = m = 16),
`:grpo_ga` (n = m = 64), `:random` and `:max_reward` (n = 64, m = 16). Options follow a comma: `:pods,n=128,m=8`.
"""

from ml_collections import ConfigDict

from pods_jax.config import default_config
from pods_jax.config.methods import set_method

METHODS = {"pods": {}, "grpo": {}, "grpo_ga": {}, "random": {}, "max_reward": {}}


def get_config(argument: str = "pods") -> ConfigDict:
    c = default_config()

    # Data: 5-digit decimal addition; the warm start imitates a teacher that drops most carries.
    c.data.name = "addition"
    c.data.options = {"base": 10, "digits": 5, "carry_prob": 0.3, "num_train": 20_000, "num_test": 1024}
    c.rollout.max_prompt_length = 11
    c.rollout.max_completion_length = 7

    # Policy: 0.2M parameters from scratch, 1,000 supervised steps: after 600 some seeds have not learned when to carry.
    c.model.hidden_size = 96
    c.model.num_hidden_layers = 2
    c.model.intermediate_size = 256
    c.model.num_attention_heads = 4
    c.model.num_key_value_heads = 2
    c.warm_start.num_steps = 1000
    c.warm_start.batch_size = 128
    c.warm_start.learning_rate = 3e-3

    # Method.
    c.rollout.num_prompts = 16
    set_method(c, argument, METHODS)

    # Optimisation.
    c.optimizer.learning_rate = 1e-3
    c.optimizer.lr_scheduler_type = "cosine"
    c.optimizer.warmup_steps = 5
    c.optimizer.adam_beta2 = 0.99
    c.optimizer.micro_batch_size_per_device = 64

    c.training.num_steps = 200
    c.training.eval_every_steps = 20
    c.training.checkpoint_every_steps = 20
    c.evaluation.num_prompts = 1024
    c.evaluation.num_samples = 1
    c.evaluation.batch_size = 1024
    return c
