"""PODS paper, GSM8K with all weights of Qwen2.5-7B-Instruct on 8 A100 (80 GB), 30 minutes.

    python experiments/train.py --config configs/paper/gsm8k_qwen7b_full.py:pods --workdir runs/a100_pods

Published (mean of 5 and 4 runs, best of 16 evaluations): `:pods` 87.9 %, `:grpo_ga` 87.0 %; PODS reaches 99 % of the
other's best 1.75 times as fast. No configuration of these runs was released. The names of the runs give the groups;
everything except these, model and hardware comes, with the arguments, from configs/paper/gsm8k_qwen3b_full.py.
"""

from pathlib import Path

from ml_collections import ConfigDict

from pods_jax.config.load import load_module

GSM8K = load_module(Path(__file__).with_name("gsm8k_qwen3b_full.py"))
METHODS = GSM8K.METHODS


def get_config(argument: str = "pods") -> ConfigDict:
    c = GSM8K.get_config(argument)
    c.model.path = "Qwen/Qwen2.5-7B-Instruct"  # [paper] 7B; [ours] its instructed model
    c.optimizer.micro_batch_size_per_device = 4  # [ours] memory only
    return c
