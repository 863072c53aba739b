"""The study of a pretrained language model as data: tasks, methods, seeds, and the order in which runs are made.

A run is a `Trial`. Learning rates are chosen per task, prompts per step and method, on seeds that are not reported
(`study.rates`); every finished trial leaves a small file (`study.trials`), from which all results follow.
"""

from collections.abc import Mapping

from pods_jax.analysis.style import LOOKS, Look
from pods_jax.config.methods import sizes
from study.extents import Extent, Method, Setting

SPEC = "configs/smollm2_chain_sum.py"


_ALL = {"selection.rule": "all"}
_PILOTS = {"allocation.name": "pilot_commit", "allocation.options": {"max_rounds": 1000}}
"""As many rounds as it takes: at first one pilot in dozens has a right rollout."""

METHODS: Mapping[str, Method] = {
    "grpo": Method(LOOKS["grpo"], _ALL | sizes(4, 4)),
    "pods": Method(LOOKS["pods"], {"selection.rule": "max_variance"} | sizes(16, 4)),
    # Four random ones of 16 are distributed as four: the updates are those of GRPO, and so is the best rate.
    "random": Method(LOOKS["random"], {"selection.rule": "random"} | sizes(16, 4), rate_of="grpo"),
    "grpo_ga": Method(LOOKS["grpo_ga"], _ALL | sizes(16, 16)),
    "pods_32": Method(Look("PODS, n = 32", "#56B4E9", "h", "--"), {"selection.rule": "max_variance"} | sizes(32, 4)),
    "pilot_commit": Method(LOOKS["pilot_commit"], _ALL | _PILOTS | sizes(16, 16)),
}


WAVES = (("grpo", "pods", "random"), ("grpo_ga", "pods_32", "pilot_commit"))
COMPARED = (("grpo", "pods", "random"), ("grpo_ga", "pods", "pods_32", "pilot_commit"))
"""Methods in each row of a figure, the baseline first."""

_SHARED = {
    "rollout.max_prompt_length": 64, "rollout.max_completion_length": 16, "model.remat": "none",
    "optimizer.warmup_steps": 5, "optimizer.micro_batch_size_per_device": 4,
    "evaluation.num_prompts": 64, "evaluation.num_samples": 0, "evaluation.batch_size": 64,
    "training.checkpoint_every_steps": 0, "training.checkpoint_every_minutes": 0, "training.keep_best": False,
    "training.log_samples_every_steps": 20,
}  # fmt: skip
_TASKS = {
    "chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
    "products": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
}
"""Procedural data sets of reasoning-gym with their parameters: sums and differences of two numbers; products."""

THRESHOLDS = {"chain_sum": (0.1, 0.25, 0.5), "products": (0.1, 0.25, 0.4)}
_LENGTHS = {  # task, prompts in a step: steps, and steps from one evaluation to the next
    ("chain_sum", 1): (200, 20),
    ("chain_sum", 4): (80, 8),
    ("products", 1): (100, 5),
    ("products", 4): (40, 2),
}
"""Those of products follow three runs of PODS on seed 100, in which it was near its best, 47 %, within 80 steps."""


_IN_ONE_PIECE = {"optimizer.micro_batch_size_per_device": 16}
"""For groups of 16 that are trained on whole: faster than in fours, which go through the prompt four times."""


def _setting(task: str, num_prompts: int) -> Setting:
    num_steps, eval_every_steps = _LENGTHS[task, num_prompts]
    keys = {
        "data.options": {"dataset": task, "num_train": 2000, "num_test": 64, "params": _TASKS[task]},
        "rollout.num_prompts": num_prompts,
        **_SHARED,
        "training.num_steps": num_steps,
        "training.eval_every_steps": eval_every_steps,
    }
    by_method = dict.fromkeys(("grpo_ga", "pilot_commit"), _IN_ONE_PIECE)
    return Setting(f"{task}-P{num_prompts}", f"{SPEC}:chain_sum", keys, THRESHOLDS[task], by_method)


COST_ROUNDS = 11
"""Timed steps of each method."""

FULL_EXTENT = Extent(
    [_setting(task, num_prompts) for task, num_prompts in _LENGTHS],
    METHODS,
    WAVES,
    first_rate=5e-6,  # the best ones of the first setting, found from 2e-5 down, are this one and half of it
)

QUICK_EXTENT = Extent(
    [
        Setting(
            "addition-P1",
            "configs/demo.py:grpo",
            {
                "model.hidden_size": 32, "model.num_hidden_layers": 1, "model.intermediate_size": 64,
                "warm_start.num_steps": 20, "data.options": {"base": 3, "digits": 2, "num_train": 48, "num_test": 32},
                "rollout.num_prompts": 1, "optimizer.micro_batch_size_per_device": 4, "evaluation.num_samples": 0,
                "evaluation.num_prompts": 32, "evaluation.batch_size": 32, "training.num_steps": 4,
                "training.eval_every_steps": 2,
            },
            THRESHOLDS["chain_sum"],
        )
    ],
    METHODS,
    waves=(("grpo", "random"),),
    seeds=range(1),
    first_rate=1e-3,
    lowest_rate=1e-3,
    highest_rate=2e-3,
)  # fmt: skip
"""The same in tiny form on a policy from scratch, without a pretrained model; its numbers mean nothing."""
