"""The model card of an export: README.md with the metadata that the Hugging Face hub reads."""

from collections.abc import Mapping, Sequence
from typing import Any

from pods_jax import __version__
from pods_jax.config.schema import Config
from pods_jax.model_files import hub_id


def model_card(config: Config, step: int, evals: Sequence[Mapping[str, Any]]) -> str:
    """The card of a policy after `step` steps of a run. evals: the records of its eval.jsonl."""
    base = config.model.path and hub_id(config.model.path)
    r = config.rollout
    lines = [
        "---",
        "library_name: transformers",
        *([f"base_model: {base}"] if base else []),
        "tags: [reinforcement-learning, grpo, pods_jax]",
        "---",
        "",
        f"# {base or config.model.path or 'A policy from scratch'}, after {step} steps",
        "",
        f"Trained by reinforcement learning from verifiable rewards with pods_jax {__version__}.",
        "",
        "| | |",
        "|---|---|",
        f"| data set | {config.data.name} |",
        f"| method | {config.allocation.name} allocation, n = {r.num_generations} rollouts a prompt, "
        f"{config.selection.rule} keeps m = {config.selection.num_kept}, {config.objective.loss_type} loss |",
        f"| trained | {_trained(config)} |",
        f"| learning rate | {config.optimizer.learning_rate:g}, {config.optimizer.lr_scheduler_type} |",
        f"| seed | {config.seed} |",
        "",
        *_scores(step, evals),
    ]
    return "\n".join(lines)


def _trained(config: Config) -> str:
    lora = config.lora
    return f"LoRA of rank {lora.rank}, scale {lora.scale:g}, merged into the weights" if lora.rank else "all weights"


def _scores(step: int, evals: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table of the accuracies before training and at the step, where they were measured."""
    by_step = {record["step"]: record for record in evals}
    shown = [s for s in dict.fromkeys((0, step)) if s in by_step]
    names = [name for name in ("accuracy", "greedy_accuracy") if all(name in by_step[s] for s in shown)]
    if not shown or not names:
        return []
    rows = [[name.replace("_", " "), *(f"{by_step[s][name]:.1%}" for s in shown)] for name in names]
    table = [["on the test problems", *(f"step {s}" for s in shown)], ["---"] * (len(shown) + 1), *rows]
    return [*(f"| {' | '.join(row)} |" for row in table), ""]
