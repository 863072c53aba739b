"""PODS paper, SciKnowEval-Chemistry. The released code and runs do not contain this setting.

    python experiments/train.py --config configs/paper/sciknoweval_chemistry.py:pods --workdir runs/chemistry_pods

There is no published score. Only the data set and the comparison are the paper's. Model, hardware (one L40S), sizes and
everything else are ours: they come, with the arguments, from configs/paper/gsm8k_qwen3b_lora.py.
"""

from pathlib import Path

from ml_collections import ConfigDict

from pods_jax.config.load import load_module

GSM8K = load_module(Path(__file__).with_name("gsm8k_qwen3b_lora.py"))
METHODS = GSM8K.METHODS


def get_config(argument: str = "pods") -> ConfigDict:
    c = GSM8K.get_config(argument)
    c.data.name = "sciknoweval_chemistry"  # [paper]
    c.data.system_prompt = (  # [ours]
        "You get a chemistry question. Think it through step by step, and check and correct your reasoning. Put the "
        "reasoning between <think> and </think>, then the final answer alone between <answer> and </answer>. "
        "The length of your response is limited."
    )
    c.data.options.num_test = 500  # [ours] drawn; the data has no split
    c.reward.task = None  # the data set's own verifier
    c.rollout.max_prompt_length = 1024  # [ours] its own instructions are part of each prompt
    c.evaluation.num_prompts = 500  # [ours]
    return c
