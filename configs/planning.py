"""Settings of the PODS paper's sizes on TPU slices, for planning; docs/planning.md has the smallest slices that fit.

    python experiments/plan.py --config configs/planning.py:qwen2.5-7b --topology v5p:2x2x2
    python experiments/train.py --config configs/planning.py:qwen2.5-7b --workdir runs/qwen2.5-7b

None of these settings was trained; the published settings are in configs/paper/.

Arguments: `:qwen2.5-7b` (default) and `:llama-3.2-3b` train all weights, split over all devices; a step has 32 groups
of n = 128 rollouts, of which m = 32 are kept, as on the paper's 8 GPUs. `:qwen2.5-3b-lora` trains adapters of rank 64
on a bfloat16 base; a step has a group of n = 64 with m = 16, as on the paper's single GPU.
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
    c.model.path = MODELS[setting]
    c.model.remat = "full"
    c.model.compute_dtype = "bfloat16"
    c.data.name = "gsm8k"
    c.reward.parts = "correctness"
    c.rollout.temperature = 0.9
    c.rollout.max_prompt_length = 512
    c.optimizer.micro_batch_size_per_device = 4
    if setting.endswith("lora"):
        c.model.dtype = "bfloat16"
        c.lora.rank = 64
        c.lora.alpha = 64.0
        c.rollout.num_prompts = 1
        c.rollout.num_generations = 64
        c.selection.num_kept = 16
        c.rollout.max_completion_length = 512
    else:
        c.mesh.data = 1
        c.mesh.fsdp = -1
        c.mesh.sampling = {"tensor": 4}  # otherwise decoding gathers or sums over all devices for every token
        c.rollout.num_prompts = 32
        c.rollout.num_generations = 128
        c.selection.num_kept = 32
        c.rollout.max_completion_length = 1024
        c.rollout.top_k = 50
    return c
