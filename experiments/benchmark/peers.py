"""The peers' side of the comparisons of generation and updates: transformers and torch, as documented there.

Imports are what these need, and no trainer, as they count in the peak of memory.
"""

from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, StoppingCriteria, StoppingCriteriaList

from benchmark.contenders import Repetition
from benchmark.workload import digits, end_ids, heavy_tailed_length
from pods_jax.processor import cores


def load(folder: str) -> Any:
    torch.set_num_threads(len(cores()))  # more threads than `taskset` leaves would wait for each other, busily
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def sampler(options: dict[str, Any]) -> Repetition:
    """transformers' `generate`; the tokens counted are those up to the end of each completion."""
    model = load(options["folder"]).eval()
    ends = end_ids(model.config.vocab_size, options["mean_length"])
    model.generation_config.eos_token_id = ends or None

    def useful(completions: torch.Tensor) -> int:
        ended = torch.isin(completions, torch.tensor(ends, dtype=completions.dtype)).int().cumsum(1)
        return int(((ended == 0).sum(1) + (ended > 0).any(1)).sum())

    return _completing(model, options, useful)


def tails(options: dict[str, Any]) -> Repetition:
    """As `sampler`, with lengths of a heavy tail; all completions are in one batch, whatever memory that takes."""
    model = load(options["folder"]).eval()
    model.generation_config.eos_token_id = None

    def lengths(completions: torch.Tensor) -> torch.Tensor:
        vocab_size = model.config.vocab_size
        by_first = [heavy_tailed_length(i, vocab_size, options["mean_length"]) for i in completions[:, 0].tolist()]
        return torch.tensor(by_first).clamp(max=options["new_tokens"])

    class AtLength(StoppingCriteria):
        def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
            completions = input_ids[:, options["prompt_tokens"] :]
            return completions.shape[1] >= lengths(completions)

    ended = StoppingCriteriaList([AtLength()])
    return _completing(model, options, lambda rows: int(lengths(rows).sum()), stopping_criteria=ended)


def _completing(model: Any, options: dict[str, Any], useful: Callable[[torch.Tensor], int], **ends: Any) -> Repetition:
    prompt = AutoTokenizer.from_pretrained(options["folder"])(digits(options["prompt_tokens"]), return_tensors="pt")
    prompt.pop("token_type_ids", None)

    def repetition() -> int:
        with torch.inference_mode():
            rows = model.generate(
                **prompt,
                do_sample=True,
                top_k=0,
                num_return_sequences=options["n"],
                max_new_tokens=options["new_tokens"],
                pad_token_id=1,
                **ends,
            )
        return useful(rows[:, prompt["input_ids"].shape[1] :])

    return repetition


def update(options: dict[str, Any]) -> Repetition:
    """Forward, backward and AdamW on rows of prompt and completion: the fastest that plain torch does it.

    Logits are of the completions only, and not copied; their log-probabilities come from `cross_entropy`, which keeps
    one array of the logits' size rather than two; AdamW is fused.
    """
    model = load(options["folder"]).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    S = options["prompt_tokens"]
    T = options["new_tokens"]
    rows = options["rows"]
    ids = torch.randint(3, model.config.vocab_size, (rows, S + T))
    advantages = torch.randn(rows, 1)
    none = torch.full((rows, 1), -100)  # nothing is known of the token after the last
    targets = torch.cat([ids[:, S:], none], 1)

    def repetition() -> int:
        logits = model(input_ids=ids, logits_to_keep=T + 1).logits
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        ((advantages * losses.view(rows, T + 1)).sum() / (rows * T)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return rows * (S + T)

    return repetition
