"""Settings of the PODS paper's sizes on TPU slices, to plan with; docs/planning.md has the least that they need.

    python experiments/plan.py --config configs/planning.py:qwen2.5-7b --topology v5p:2x2x2
    python experiments/train.py --config configs/planning.py:qwen2.5-7b --workdir runs/qwen2.5-7b

None of them was trained; the settings that were published are in configs/paper/.

Arguments: `:qwen2.5-7b` (default) and `:llama-3.2-3b` (all weights, split over all devices; a step is 32 groups of
n = 128 rollouts of which m = 32 are kept, as on the paper's 8 GPUs), `:qwen2.5-3b-lora` (rank 64 on a bfloat16 base; a
group of n = 64, m = 16, as on its single GPU).
"""

from ml_collections import ConfigDict

from pods_jax.config import default_config
from pods_jax.errors import UserError
from pods_jax.registry import nearest

MODELS = {
    "qwen2.5-7b": "Qwen/Qwen2.5-7B-Instruct",
    "llama-3.2-3b": "meta-llama/Llama-3.2-3B-Instruct",
    "qwen2.5-3b-lora": "Qwen/Qwen2.5-3B-Instruct",
}


def get_config(setting: str = "qwen2.5-7b") -> ConfigDict:
    if setting not in MODELS:
        raise UserError(f"configs/planning.py has no argument '{setting}' ({nearest(setting, MODELS)})")
    c = default_config()
    c.model.path, c.model.remat, c.model.compute_dtype = MODELS[setting], "full", "bfloat16"
    c.data.name, c.reward.parts = "gsm8k", "correctness"
    c.rollout.temperature, c.rollout.max_prompt_length = 0.9, 512
    c.optimizer.micro_batch_size_per_device = 4
    if setting.endswith("lora"):
        c.model.dtype, c.lora.rank, c.lora.alpha = "bfloat16", 64, 64.0
        c.rollout.num_prompts, c.rollout.num_generations, c.selection.num_kept = 1, 64, 16
        c.rollout.max_completion_length = 512
    else:
        c.mesh.data, c.mesh.fsdp = 1, -1
        c.rollout.num_prompts, c.rollout.num_generations, c.selection.num_kept = 32, 128, 32
        c.rollout.max_completion_length, c.rollout.top_k = 1024, 50
    return c
