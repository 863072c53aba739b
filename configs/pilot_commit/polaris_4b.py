"""Pilot-Commit paper, Polaris-53K with Qwen3-4B-Base; published on 64 H200, 500 steps.

    python experiments/train.py --config configs/pilot_commit/polaris_4b.py:pilot_commit --workdir runs/polaris_4b_pc

Published, rollouts generated until the target accuracy: `:pilot_commit` 1.7 million, `:grpo` 2.5, `:dapo` never.
Arguments and sources as in configs/pilot_commit/deepmath_1p5b.py, from which this differs as below.
"""

from pathlib import Path

from ml_collections import ConfigDict

from pods_jax.config.load import load_module
from pods_jax.config.methods import set_method

DEEPMATH = load_module(Path(__file__).with_name("deepmath_1p5b.py"))
METHODS = DEEPMATH.methods(64, "random")  # [code]; their DAPO script sets n = 16, against its name and the paper


def get_config(argument: str = "pilot_commit") -> ConfigDict:
    c = DEEPMATH.get_config("grpo")
    c.model.path = "Qwen/Qwen3-4B-Base"  # [paper] Qwen3-4B; that it is the base model is [ours]
    c.data.name = "polaris"  # [paper]
    c.reward.parts = "correctness"  # [code] no overlong penalty
    c.reward.overlong_cache_length = None  # [code]
    c.rollout.max_completion_length = 4096  # [code]
    c.training.num_steps = 500  # [code]
    c.optimizer.micro_batch_size_per_device = 1  # [ours] memory only
    set_method(c, argument, METHODS)
    return c
