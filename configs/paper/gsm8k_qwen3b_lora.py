"""PODS paper, GSM8K with Qwen2.5-3B-Instruct and LoRA on one L40S (48 GB), 6 hours.

    pip install -e '.[cuda,quantize]'
    python experiments/train.py --config configs/paper/gsm8k_qwen3b_lora.py:pods --workdir runs/gsm8k_pods

Published (mean of 10 runs, best of 12 evaluations): `:pods` 82.6 %, `:grpo` 81.6 %; PODS reaches 99 % of GRPO's best in
half its time. Ablations: `:pods,n=128` (n of 32, 64, 128, 256), `:pods,m=4` (m of 8, 4, 2), `:random`, `:max_reward`,
`:percentile`, `:pods,normalize=before`; `:grpo_ga` trains on all 64. Data: the hub, or --config.data.path=FOLDER.

Sources: [code] the authors' repository (YixuanEvenXu/pods, 187f43b); [paper] arXiv 2504.13818; [ours] where neither
says.
"""

from ml_collections import ConfigDict

from pods_jax.config import default_config
from pods_jax.config.methods import set_method

METHODS = {
    "pods": {},  # [paper], [code] num_generations_{reward,grad}: n = 64, m = 16
    "grpo": {},  # [paper] the baseline: generates m rollouts
    "grpo_ga": {},  # [ours] on one device: generates n rollouts, and trains on all
    "random": {},  # [code] RandomGRPO
    "max_reward": {},  # [code] MaxRewardGRPO
    "percentile": {},  # [paper] with the sizes of the others
}


def get_config(argument: str = "pods") -> ConfigDict:
    c = default_config()
    c.seed = 42  # [code]; runs 1 to 10 differ in it
    c.model.path = "Qwen/Qwen2.5-3B-Instruct"  # [code]
    c.model.dtype = "bfloat16"  # [code] bf16 where supported; the adapters are float32
    c.model.remat = "full"  # [code] gradient checkpointing

    # Adapters of all seven projections, on a base in 4 bits. [code]
    c.lora.rank = 64  # [code]
    c.lora.alpha = 64.0  # [code]
    c.lora.quantize_base = "nf4"  # [code] load_in_4bit

    c.data.name = "gsm8k"  # [code]
    c.data.system_prompt = (  # [ours]; [code] asks for the same in other words
        "You get a math question. Think it through step by step, and check and correct your reasoning. Put the "
        "reasoning between <think> and </think>, then the final answer alone between <answer> and </answer>. "
        "The length of your response is limited."
    )

    # Reward: correctness 1, format 0.1, tags 0.1, with a lenient reading of the answer. [code]
    c.reward.task = "pods_lenient"  # [code]
    c.reward.parts = "pods_single_device"  # [code]
    c.reward.format = "think_answer"  # [code] evaluations report the format too

    c.rollout.num_prompts = 1  # [code] per-device batch and accumulation 1
    c.rollout.temperature = 0.9  # [code]
    c.rollout.max_prompt_length = c.rollout.max_completion_length = 512  # [code]

    # Objective: on-policy, one update a batch, no KL; mean and unbiased deviation over the kept, + 1e-4. [code]
    # Here the update's log-probabilities are at the sampling temperature; [code] leaves the temperature out there.
    c.objective.loss_type = "grpo"  # [code] mean over a sequence's tokens, then over sequences
    c.objective.beta = 0.0  # [code]

    c.optimizer.learning_rate = 5e-6  # [code] constant
    c.optimizer.adam_beta1 = 0.9  # [code] with 8-bit moments, here float32
    c.optimizer.adam_beta2 = 0.99  # [code]
    c.optimizer.weight_decay = 0.1  # [code]
    c.optimizer.max_grad_norm = 0.1  # [code]

    c.training.max_minutes = 360.0  # [paper] 6 hours
    c.training.num_steps = 8000  # [code] max_steps, never reached
    c.training.eval_every_minutes = 30.0  # [code]
    c.evaluation.num_prompts = 1319  # [code] the test set
    c.evaluation.num_samples = 5  # [code]
    c.evaluation.temperature = 0.9  # [code]
    c.evaluation.batch_size = 64  # [ours] memory only

    set_method(c, argument, METHODS)
    c.optimizer.micro_batch_size_per_device = min(4, c.selection.num_kept)  # [ours] memory only
    return c
