"""PODS paper, GSM8K with Llama-3.2-3B-Instruct and LoRA on one L40S (48 GB), 1.5 hours.

    python experiments/train.py --config configs/paper/gsm8k_llama3b_lora.py:pods --workdir runs/llama_pods

Published (mean of 10 runs, best of 9 evaluations), right *and* well-formatted (`both` in eval.jsonl): `:pods` 55.9 %,
`:grpo` 39.1 %; PODS reaches 99 % of GRPO's best in a third of its time. By the answer only (`accuracy`) the best are
57.3 % and 58.0 %. Arguments, sources and LoRA are those of configs/paper/gsm8k_qwen3b_lora.py.
"""

from pathlib import Path

from ml_collections import ConfigDict

from pods_jax.config.load import load_module

GSM8K = load_module(Path(__file__).with_name("gsm8k_qwen3b_lora.py"))
METHODS = GSM8K.METHODS


def get_config(argument: str = "pods") -> ConfigDict:
    c = GSM8K.get_config(argument)
    c.model.path = "meta-llama/Llama-3.2-3B-Instruct"  # [code]
    c.objective.beta = 0.04  # [code] in the names of the runs
    c.training.max_minutes = 90.0  # [paper] plotted; the runs went on for 2 hours
    c.training.eval_every_minutes = 10.0  # [code]
    return c
