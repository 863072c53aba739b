"""Pilot-Commit paper, DeepMath-103K with Qwen2.5-Math-1.5B; published on 64 H200, 1,000 steps.

    python experiments/train.py --config configs/pilot_commit/deepmath_1p5b.py:pilot_commit --workdir runs/deepmath_pc

Published, rollouts generated until the target accuracy: `:pilot_commit` 10.6 million, `:grpo` 16.0, `:dapo` 42.0. The
three differ in the allocation alone. `:pilot_commit_pods` is ours: of each union, PODS keeps a quarter. `:grpo,n=64`
sets the rollouts a prompt of the baselines.

Sources: [code] the authors' repository (databricks/pilot-commit, 6def20e) and its scripts; [paper] arXiv 2605.26606;
[ours] where neither says. What differs: [code] has a test split of DeepMath, here it is 200 problems that are left out.
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


def get_config(argument: str = "pilot_commit") -> ConfigDict:
    c = default_config()
    c.model.path = "Qwen/Qwen2.5-Math-1.5B"  # [paper]
    c.model.compute_dtype, c.model.remat = "bfloat16", "full"  # [ours] speed and memory only
    c.mesh.data, c.mesh.fsdp = 1, -1  # [ours]

    c.data.name, c.data.eval_name = "deepmath", "math500"  # [paper], and one of the validation sets of [code]
    c.data.system_prompt = ""  # [code]
    c.data.prompt_template = (  # [code] asks for the same in other words
        "{question}\n\nThink step by step, and put your final answer within \\boxed{}."
    )
    # Correct or not; a penalty grows over the last half of the length, which the allocators' filters do not see. [code]
    c.reward.task, c.reward.parts = "math", {"correctness": 1.0, "overlong": 1.0}
    c.reward.overlong_cache_length = 4096  # [code] overlong_buffer

    c.rollout.num_prompts = 128  # [code] train_batch_size
    c.rollout.temperature, c.rollout.top_p = 1.0, 1.0  # [code]
    c.rollout.max_prompt_length, c.rollout.max_completion_length = 2048, 8192  # [code]

    # Token mean, clip-higher, dual clip; no KL, no entropy bonus. [code]
    c.objective.loss_type = "dapo"  # [code] token-mean
    c.objective.epsilon, c.objective.epsilon_high, c.objective.delta = 0.2, 0.28, 10.0  # [code]
    c.objective.advantage_epsilon = 1e-6  # [code] verl's
    c.objective.steps_per_generation = 4  # [code] 4 updates of 32 prompts a step

    c.optimizer.learning_rate, c.optimizer.warmup_steps = 1e-6, 40  # [code] 10 steps of 4 updates, constant afterwards
    c.optimizer.weight_decay, c.optimizer.max_grad_norm = 0.1, 1.0  # [code]
    c.optimizer.micro_batch_size_per_device = 2  # [ours] memory only

    c.training.num_steps, c.training.eval_every_steps, c.training.checkpoint_every_steps = 1000, 5, 20  # [code]
    c.evaluation.num_prompts, c.evaluation.num_samples = 500, 1  # [code] all of MATH-500, once
    c.evaluation.temperature, c.evaluation.top_p = 1.0, 0.7  # [code]
    c.evaluation.sets = {  # [code] small sets 32 times, the others once
        "aime24": {"num_samples": 32},
        "aime25": {"num_samples": 32},
        "amc23": {"num_samples": 32},
        "minerva": {},
        "olympiadbench": {"num_prompts": 1000},  # all
        "deepmath": {},
    }
    c.evaluation.batch_size = 128  # [ours] memory only

    set_method(c, argument, METHODS)
    return c
