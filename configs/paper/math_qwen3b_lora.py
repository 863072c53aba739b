"""PODS paper, MATH with Qwen2.5-3B-Instruct and LoRA on one L40S (48 GB), 6 hours; evaluated on MATH-500.

    python experiments/train.py --config configs/paper/math_qwen3b_lora.py:pods --workdir runs/math_pods

Published (mean of 10 runs, best of 12 evaluations): `:pods` 50.4 %, `:grpo` 48.9 %; PODS reaches 99 % of GRPO's best in
half its time. Arguments and sources are those of configs/paper/gsm8k_qwen3b_lora.py. The authors' training golds were
cut at the first closing brace, so that some were half a fraction; here golds are whole.

Data: the hub, or --config.data.path=FOLDER --config.data.eval_path=FILE.
"""

from pathlib import Path

from ml_collections import ConfigDict

from pods_jax.config.load import load_module
from pods_jax.config.methods import set_method, sizes

GSM8K = load_module(Path(__file__).with_name("gsm8k_qwen3b_lora.py"))
METHODS = {
    "pods": sizes(32, 8),  # [paper], [code]
    "grpo": sizes(8, 8),  # [paper], [code]
    "grpo_ga": sizes(32, 32),  # [ours]
    "random": sizes(32, 8),  # [ours] the paper has the rules on GSM8K only
    "max_reward": sizes(32, 8),  # [ours]
    "percentile": sizes(32, 8),  # [ours]
}


def get_config(argument: str = "pods") -> ConfigDict:
    c = GSM8K.get_config()
    c.data.name = "math"  # [code] all seven subjects
    c.data.eval_name = "math500"  # [code]
    c.evaluation.num_prompts = 500  # [code] of which 496 have prompts of at most 512 tokens
    set_method(c, argument, METHODS)
    c.optimizer.micro_batch_size_per_device = min(4, c.selection.num_kept)  # [ours] memory only
    return c
