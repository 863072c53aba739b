"""The map of regimes as data: at which noise scale, prompts per step and group sizes PODS and Pilot-Commit pay.

Every run of a task has the same training time, by step costs that are measured once and interleaved, at a constant
learning rate. Its warm start has the run's seed, of those whose initial accuracy lies within the task's bounds
(`study.warm_starts`). The tuning seeds, on which each method's rate is chosen per setting, are not reported.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from pods_jax.analysis.style import LOOKS
from pods_jax.config.methods import sizes
from study import smollm2
from study.extents import Extent, Method, Setting

MICRO_BATCH = 64
"""Rollouts whose activations exist at a time, where an update has so many."""

_ALL = {"selection.rule": "all"}
_PILOTS = {"n_pilot": 16, "n_commit": 48, "on_exhausted": "train_partial"}

METHODS: Mapping[str, Method] = {name: smollm2.METHODS[name] for name in ("grpo", "pods", "grpo_ga", "random")}
ALLOCATORS: Mapping[str, Method] = {
    "grpo": Method(LOOKS["grpo"], _ALL | sizes(64, 64)),
    "pilot_commit": Method(
        LOOKS["pilot_commit"],
        _ALL | sizes(64, 64) | {"allocation.name": "pilot_commit", "allocation.options": _PILOTS},
    ),
}


@dataclasses.dataclass(frozen=True)
class Task:
    """A task at several numbers of prompts a step.

    Attributes:
      name, spec, keys: of its settings and their config.
      methods: that are compared; the first is the baseline.
      prompts: P of each setting.
      seconds: training time of a run.
      thresholds: mean accuracies to reach.
      accepted: bounds of a warm start's accuracy.
    """

    name: str
    spec: str
    keys: Mapping[str, object]
    methods: Mapping[str, Method]
    prompts: Sequence[int]
    seconds: float
    thresholds: Sequence[float]
    accepted: tuple[float, float] = (0.05, 0.15)

    def setting_name(self, num_prompts: int) -> str:
        """The name of a setting."""
        return f"{self.name}-P{num_prompts}"

    def config_keys(self, num_prompts: int, method: str) -> dict[str, object]:
        """All values that differ from the config file, without those that a step's cost decides."""
        own = self.methods[method].keys | self.micro_batch(num_prompts, method)
        return {**self.keys, "rollout.num_prompts": num_prompts, **own}

    def micro_batch(self, num_prompts: int, method: str) -> dict[str, int]:
        """The key of the rollouts whose activations exist at a time."""
        rollouts = num_prompts * self.methods[method].keys["selection.num_kept"]
        return {"optimizer.micro_batch_size_per_device": min(MICRO_BATCH, rollouts)}


@dataclasses.dataclass(frozen=True)
class Regime:
    """The extent of the map.

    Attributes:
      num_seeds, num_tuning_seeds: reported ones, and those that choose learning rates.
      first_rate, lowest_rate, highest_rate: of the search by factors of 2.
      num_evaluations: about so many after step 0, in equal times; num_measurements: of the noise scale.
      cost_rounds: timed steps of each method.
    """

    tasks: Sequence[Task]
    num_seeds: int = 10
    num_tuning_seeds: int = 3
    first_rate: float = 1.25e-4
    lowest_rate: float = 3.125e-5
    highest_rate: float = 1e-3
    num_evaluations: int = 48
    num_measurements: int = 12
    cost_rounds: int = 20

    def extent(self, task: Task, seeds: Sequence[int], step_seconds: Mapping[str, float]) -> Extent:
        """A task's trials.

        Args:
          seeds: of accepted warm starts; the first ones choose learning rates.
          step_seconds: of a step, by `cost_names`.
        """
        return Extent(
            settings=[self._setting(task, P, step_seconds) for P in task.prompts],
            methods=task.methods,
            waves=(tuple(task.methods),),
            metric="accuracy",
            tuning_seeds=seeds[: self.num_tuning_seeds],
            seeds=seeds[self.num_tuning_seeds : self.num_tuning_seeds + self.num_seeds],
            first_rate=self.first_rate,
            lowest_rate=self.lowest_rate,
            highest_rate=self.highest_rate,
        )

    def _setting(self, task: Task, num_prompts: int, step_seconds: Mapping[str, float]) -> Setting:
        name = task.setting_name(num_prompts)
        by_method = {
            m: task.micro_batch(num_prompts, m) | self._length(task.seconds / step_seconds[cost_name(name, m)])
            for m in task.methods
        }
        keys = {**task.keys, "rollout.num_prompts": num_prompts}
        return Setting(name, task.spec, keys, task.thresholds, by_method, seeded=("warm_start.seed",))

    def _length(self, steps: float) -> dict[str, int]:
        """Keys of a run of about so many steps, in whole times between evaluations."""
        between = max(1, round(steps / self.num_evaluations))
        num_steps = between * max(1, round(steps / between))
        return {
            "training.num_steps": num_steps,
            "training.eval_every_steps": between,
            "diagnostics.noise_scale_every_steps": max(1, num_steps // self.num_measurements),
        }


def cost_name(setting: str, method: str) -> str:
    """The name of a method's step cost in a setting."""
    return f"{setting}-{method}"


def costs_of(task: Task) -> Iterator[tuple[str, dict[str, object]]]:
    """The names of a task's step costs, and the config keys of each."""
    for num_prompts in task.prompts:
        for method in task.methods:
            yield cost_name(task.setting_name(num_prompts), method), task.config_keys(num_prompts, method)


_SHARED = {
    "training.checkpoint_every_steps": 0, "training.checkpoint_every_minutes": 0, "training.keep_best": False,
    "optimizer.lr_scheduler_type": "constant",
    "warm_start.num_steps": 600, "warm_start.learning_rate": 2e-3,
    "evaluation.num_prompts": 512, "evaluation.batch_size": 512, "evaluation.num_samples": 1,
    "evaluation.greedy": False,
}  # fmt: skip
_ADDITION = {"base": 10, "digits": 5, "carry_prob": 0.3, "num_train": 20_000, "num_test": 512}
_MIXED = {
    "base": 10, "digits": 5, "carry_prob": 0.4, "num_train": 600, "num_test": 512, "unseen_fraction": 0.4,
    "no_carry_fraction": 0.5,
}  # fmt: skip
"""A tenth of the training problems of configs/mixed.py, so that a run goes on past its first epoch."""
CHATTER = 16
_DEMO = "configs/demo.py:grpo"
PROMPTS = (1, 4, 16)

FULL = Regime(
    [
        Task("addition", _DEMO, _SHARED | {"data.options": _ADDITION}, METHODS, PROMPTS, 10.0, (0.25, 0.5)),
        Task(
            "chatter",
            _DEMO,
            _SHARED
            | {
                "data.options": _ADDITION | {"chatter": CHATTER},
                "rollout.max_completion_length": 8 + CHATTER,
                "warm_start.learning_rate": 1e-3,  # with 2e-3, answers stay at 2 % right, however long it lasts
            },
            METHODS,
            PROMPTS,
            20.0,
            (0.25, 0.5),
        ),
        Task(
            "mixed", "configs/mixed.py:grpo", _SHARED | {"data.options": _MIXED}, ALLOCATORS, (2, 4, 16), 20.0,
            (0.44, 0.51), accepted=(0.0, 1.0),
        ),
    ]
)  # fmt: skip

_TINY = _SHARED | {
    "model.hidden_size": 32, "model.num_hidden_layers": 1, "model.intermediate_size": 64, "warm_start.num_steps": 50,
    "evaluation.num_prompts": 32, "evaluation.batch_size": 32, "diagnostics.noise_scale_num_prompts": 4,
}  # fmt: skip
_SMALL = {"base": 3, "digits": 2, "num_train": 48, "num_test": 32}
QUICK = Regime(
    [
        Task(
            "chatter", _DEMO,
            _TINY | {"data.options": _SMALL | {"chatter": 4}, "rollout.max_completion_length": 8},
            {name: METHODS[name] for name in ("grpo", "pods")}, (2,), 0.1, (0.1,), accepted=(0.0, 1.0),
        ),
        Task(
            "mixed", "configs/mixed.py:grpo", _TINY | {"data.options": _SMALL}, ALLOCATORS, (2,), 0.1, (0.1,),
            accepted=(0.0, 1.0),
        ),
    ],
    num_seeds=1, num_tuning_seeds=1, first_rate=1e-3, lowest_rate=1e-3, highest_rate=1e-3, num_evaluations=2,
    num_measurements=1, cost_rounds=1,
)  # fmt: skip
"""The same in tiny form; its numbers mean nothing."""
