"""Pilot-Commit paper, DeepMath-103K with Qwen2.5-Math-1.5B, 1,000 steps; the scripts ask for 2 nodes of 8 GPUs.

    python experiments/train.py --config configs/pilot_commit/deepmath_1p5b.py:pilot_commit --workdir runs/deepmath_pc

Published, millions of rollouts generated until the target accuracy: `:pilot_commit` 10.6, `:grpo` 16.0, `:dapo` 42.0.
The three differ only in the allocation. `:pilot_commit_pods` is ours: PODS keeps a quarter of each union. `:grpo,n=64`
sets the rollouts of a prompt for the baselines.

These train the model and the data that the paper names. The stock model was made for 4,096 positions, and the runs have
2,048 + 8,192: `model.allow_longer_context` is on. The scripts name the authors' own copies instead: a model with a
longer context, and a filtered DeepMath with a test split. `:published` (or `:published,grpo`, `:published,dapo`) takes
those, friendshipkim/Qwen2.5-Math-1.5B and friendshipkim/DeepMath-103K-filtered, from the hub.

Sources: [code] the authors' repository (databricks/pilot-commit, 6def20e) and its scripts; [paper] arXiv 2605.26606;
[ours] where neither says. Of the unfiltered DeepMath, which has no test split, 200 problems are left out for one.
"""

from ml_collections import ConfigDict

from pods_jax.config import default_config
from pods_jax.config.methods import Keys, set_method, sizes


def methods(n: int, buffer_sampling: str) -> dict[str, Keys]:
    """Pilot-Commit and its baselines with n rollouts a group, a quarter of them pilots. [code]"""
    pilot_commit = {
        "allocation.options": {
            "n_pilot": n // 4,  # [code] 32 of 128, 16 of 64
            "n_commit": n - n // 4,  # [code] 96 and 48
            "candidates": 384,  # [code] gen_batch_size, 3 x 128
            "p_lower": 0.125,  # [code] diversity_threshold_lower
            "p_upper": 0.75,  # [code] 1 - diversity_threshold_upper
            "p_solve": 1.0,  # [code] exclude_threshold_upper
            "max_staleness": 4,  # [paper]
            "buffer_sampling": buffer_sampling,  # [code]
            "max_rounds": 10,  # [code] max_num_gen_batches
        },
    }
    dapo = {
        "allocation.options": {"candidates": 384, "max_rounds": 10},
        "objective.mask_truncated_completions": False,
    }  # [code]
    return {
        "pilot_commit": pilot_commit | sizes(n, n),
        "grpo": sizes(n, n),
        "dapo": dapo | sizes(n, n),
        "pilot_commit_pods": pilot_commit | sizes(n, n // 4),  # [ours]
    }


METHODS = methods(128, "max_variance")  # [code]
PUBLISHED = {  # [code]
    "model.path": "friendshipkim/Qwen2.5-Math-1.5B",
    "model.allow_longer_context": False,
    "data.name": "deepmath_filtered",
    "evaluation.sets.deepmath": {"name": "deepmath_filtered"},
}


def get_config(argument: str = "pilot_commit") -> ConfigDict:
    c = default_config()
    c.model.path = "Qwen/Qwen2.5-Math-1.5B"  # [paper]
    c.model.allow_longer_context = True  # [ours]
    c.model.compute_dtype = "bfloat16"  # [ours] speed and memory only
    c.model.remat = "full"  # [ours] memory only
    # Devices in eights: gradients are reduced within each, and each device decodes with weights of its own.
    c.mesh.data = -1  # [ours]
    c.mesh.fsdp = 8  # [ours]
    c.mesh.sampling = {"tensor": 1}  # [code] rollout.tensor_model_parallel_size
    c.rollout.max_cache_bytes_per_device = 32 * 1024**3  # [ours] memory only

    c.data.name = "deepmath"  # [paper]
    c.data.eval_name = "math500"  # [code] one of its validation sets
    c.data.system_prompt = ""  # [code]
    c.data.prompt_template = (  # [code] asks for the same in other words
        "{question}\n\nThink step by step, and put your final answer within \\boxed{}."
    )
    # Correctness, and a penalty over the last half of the length, which the allocators do not see. [code]
    c.reward.task = "math"  # [code]
    c.reward.parts = {"correctness": 1.0, "overlong": 1.0}  # [code]
    c.reward.overlong_cache_length = 4096  # [code] overlong_buffer

    c.rollout.num_prompts = 128  # [code] train_batch_size
    c.rollout.temperature = 1.0  # [code]
    c.rollout.top_p = 1.0  # [code]
    c.rollout.max_prompt_length = 2048  # [code]
    c.rollout.max_completion_length = 8192  # [code]

    # Token mean, clip-higher, dual clip; no KL, no entropy bonus. [code]
    c.objective.loss_type = "dapo"  # [code] token-mean
    c.objective.epsilon = 0.2  # [code]
    c.objective.epsilon_high = 0.28  # [code]
    c.objective.delta = 10.0  # [code]
    c.objective.advantage_epsilon = 1e-6  # [code] verl's
    c.objective.steps_per_generation = 4  # [code] 4 updates of 32 prompts a step

    c.optimizer.learning_rate = 1e-6  # [code] constant after the warm-up
    c.optimizer.warmup_steps = 40  # [code] 10 steps of 4 updates
    c.optimizer.weight_decay = 0.1  # [code]
    c.optimizer.max_grad_norm = 1.0  # [code]
    c.optimizer.micro_batch_size_per_device = 2  # [ours] memory only

    c.training.num_steps = 1000  # [code]
    c.training.eval_every_steps = 5  # [code]
    c.training.checkpoint_every_steps = 20  # [code]
    c.evaluation.num_prompts = 500  # [code] all of MATH-500
    c.evaluation.num_samples = 1  # [code]
    c.evaluation.temperature = 1.0  # [code]
    c.evaluation.top_p = 0.7  # [code]
    c.evaluation.sets = {  # [code] small sets 32 times, the others once
        "aime24": {"num_samples": 32},
        "aime25": {"num_samples": 32},
        "amc23": {"num_samples": 32},
        "minerva": {},
        "olympiadbench": {"num_prompts": 1000},  # all
        "deepmath": {},
    }
    c.evaluation.batch_size = 128  # [ours] memory only

    first, _, rest = argument.partition(",")
    if first == "published":
        c.update_from_flattened_dict(PUBLISHED)
        argument = rest or "pilot_commit"
    set_method(c, argument, METHODS)
    return c
