"""PODS paper, GSM8K with all weights of Qwen2.5-3B-Instruct on 8 H100 (80 GB), 30 minutes.

    pip install -e '.[cuda]'
    python experiments/train.py --config configs/paper/gsm8k_qwen3b_full.py:pods --workdir runs/h100_pods

Published (mean of 5 runs, best of 16 evaluations): `:pods` 84.1 %, `:grpo_ga` 82.6 %; PODS reaches 99 % of the other's
best 1.71 times as fast. Both generate 512 rollouts for each of 8 prompts: `:pods` as 4 groups of 128, of which 32 are
kept; `:grpo_ga` as 16 groups of 32, all trained on. Ablations are those of configs/paper/gsm8k_qwen3b_lora.py.

Sources: [code] the authors' repository (YixuanEvenXu/pods, 187f43b), its open-r1 part; [paper] arXiv 2504.13818; [ours]
where neither says. Their selection loop had a defect (docs/figures.md), which is not reproduced. Their verifier took
boxed answers only, so accuracy began at 3 %; ours also takes answers that tags mark, and begins higher.
"""

from ml_collections import ConfigDict

from pods_jax.config import default_config
from pods_jax.config.methods import Keys, set_method, sizes


def of_512(n: int, m: int) -> Keys:
    """8 prompts (one for each device) of 512 rollouts, in groups of n that are selected and normalised apart. [code]"""
    groups = 512 // n
    grouped = {"rollout.num_prompts": 8 * groups, "allocation.options": {"groups_per_prompt": groups}}
    return grouped | sizes(n, m)


METHODS = {
    "pods": of_512(128, 32),  # [code] n = 128, m = 32, accumulation 4
    "grpo_ga": of_512(32, 32),  # [code] n = m = 32, accumulation 16
    "grpo": {"rollout.num_prompts": 8} | sizes(32, 32),  # [ours] one group for each prompt, all trained on
    "random": of_512(128, 32),  # [ours] the paper has the rules on one device only
    "max_reward": of_512(128, 32),  # [ours]
    "percentile": of_512(128, 32),  # [ours]
}


def get_config(argument: str = "pods") -> ConfigDict:
    c = default_config()
    c.seed = 11  # [code] 11 to 15 and 21 to 25
    c.model.path = "Qwen/Qwen2.5-3B-Instruct"  # [code]
    c.model.remat = "full"  # [code] gradient checkpointing
    # Weights and moments in float32 over 8 devices; [code] has ZeRO-2, which shards the moments only.
    c.model.compute_dtype = "bfloat16"  # [code] bf16
    c.mesh.data = 1  # [ours]
    c.mesh.fsdp = -1  # [ours]
    c.mesh.sampling = {"tensor": 1}  # [ours] each device decodes with weights of its own
    c.rollout.max_cache_bytes_per_device = 32 * 1024**3  # [ours] memory only

    c.data.name = "gsm8k"  # [code]
    c.data.system_prompt = (  # [ours]; [code] asks for the same in other words
        "You are a helpful assistant. First think about the question as an inner monologue, then answer it. Write the "
        "thoughts between <think> and </think> and the answer between <answer> and </answer>, each tag on a line of "
        "its own, and put the final result within \\boxed{}."
    )
    c.reward.task = "math"  # [code]
    c.reward.parts = "pods_multi_device"  # [code] accuracy 1, format 1, tags 1
    c.reward.format = "think_answer_lines"  # [code]

    c.rollout.temperature = 0.9  # [code]
    c.rollout.top_k = 50  # [code]
    c.rollout.max_prompt_length = 512  # [code]
    c.rollout.max_completion_length = 1024  # [code]

    c.objective.loss_type = "bnpo"  # [code] a mean over the tokens of a micro-batch, here of the batch
    c.objective.epsilon = 0.2  # [code] never active with one update a batch
    c.objective.beta = 0.0  # [code]

    c.optimizer.learning_rate = 2e-5  # [code]
    c.optimizer.lr_scheduler_type = "cosine"  # [code]
    c.optimizer.warmup_steps = 24  # [code] a tenth of the steps
    # The next four are transformers' defaults: [code] sets none of them.
    c.optimizer.adam_beta1 = 0.9
    c.optimizer.adam_beta2 = 0.999
    c.optimizer.weight_decay = 0.0
    c.optimizer.max_grad_norm = 1.0
    c.optimizer.micro_batch_size_per_device = 8  # [ours] memory only

    c.training.max_minutes = 40.0  # [paper] 30 minutes are plotted
    c.training.num_steps = 240  # [ours] for the schedule
    c.training.eval_every_minutes = 2.0  # [code]
    c.evaluation.num_prompts = 1319  # [code]
    c.evaluation.num_samples = 1  # [code]
    c.evaluation.temperature = 0.9  # [code]
    c.evaluation.batch_size = 264  # [ours] memory only

    set_method(c, argument, METHODS)
    return c
