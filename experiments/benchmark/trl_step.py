"""TRL's side of the comparison of steps: its GRPOTrainer, as its documentation has it."""

import queue
import tempfile
import threading
from typing import Any

from transformers import AutoTokenizer, TrainerCallback

from benchmark.contenders import Repetition
from benchmark.peers import load
from benchmark.workload import digits, reward


class _Turns(TrainerCallback):
    """Holds a trainer before every step until it is its turn."""

    def __init__(self):
        self.go = queue.Queue()
        self.done = queue.Queue()

    def on_step_begin(self, *args, **kwargs):
        self.go.get()

    def on_step_end(self, *args, **kwargs):
        self.done.put(None)


def step(options: dict[str, Any]) -> Repetition:
    """A step of TRL's GRPOTrainer on one prompt: n completions, all trained on, in micro-batches of at most 16."""
    from datasets import Dataset
    from trl import GRPOTrainer

    n = options["n"]
    turns = _Turns()
    trainer = GRPOTrainer(
        model=load(options["folder"]),
        processing_class=AutoTokenizer.from_pretrained(options["folder"]),
        reward_funcs=reward,
        args=_grpo_config(n, options["new_tokens"]),
        train_dataset=Dataset.from_list([{"prompt": digits(options["prompt_tokens"], seed)} for seed in range(64)]),
        callbacks=[turns],
    )
    threading.Thread(target=_train, args=(trainer, turns), daemon=True).start()

    def repetition() -> int:
        turns.go.put(None)
        if (error := turns.done.get()) is not None:
            raise error
        return n * options["new_tokens"]

    return repetition


def _grpo_config(n: int, new_tokens: int) -> Any:
    """A GRPOConfig of TRL for one prompt a step, n completions, in micro-batches of at most 16."""
    from trl import GRPOConfig

    micro = min(n, 16)
    return GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=n // micro,
        num_generations=n,
        max_completion_length=new_tokens,
        max_steps=100_000,
        learning_rate=1e-6,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )


def _train(trainer: Any, turns: _Turns) -> None:
    try:
        trainer.train()
    except Exception as error:
        turns.done.put(error)  # for the thread that waits for the step, which raises it
