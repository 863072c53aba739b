"""Pilot-Commit paper, Polaris-53K with Qwen3-4B-Base, 500 steps; the scripts ask for 4 nodes of 8 GPUs.

    python experiments/train.py --config configs/pilot_commit/polaris_4b.py:pilot_commit --workdir runs/polaris_4b_pc

Published, millions of rollouts generated until the target accuracy: `:pilot_commit` 1.7, `:grpo` 2.5, `:dapo` never.
Arguments, sources and all keys that are not set below are those of configs/pilot_commit/deepmath_1p5b.py.
"""

from pathlib import Path

from ml_collections import ConfigDict

from pods_jax.config.load import load_module
from pods_jax.config.methods import set_method

DEEPMATH = load_module(Path(__file__).with_name("deepmath_1p5b.py"))
METHODS = DEEPMATH.methods(64, "random")  # [code]; its DAPO script sets n = 16, unlike its name and the paper


def get_config(argument: str = "pilot_commit") -> ConfigDict:
    c = DEEPMATH.get_config("grpo")
    c.model.path = "Qwen/Qwen3-4B-Base"  # [code]; [paper] Qwen3-4B
    c.model.allow_longer_context = False
    c.data.name = "polaris"  # [paper]
    c.reward.parts = "correctness"  # [code] no overlong penalty
    c.reward.overlong_cache_length = None  # [code]
    c.rollout.max_completion_length = 4096  # [code]
    c.training.num_steps = 500  # [code]
    c.optimizer.micro_batch_size_per_device = 1  # [ours] memory only
    set_method(c, argument, METHODS)
    return c
