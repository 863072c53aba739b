"""The parts of a study of trials, as data: methods, settings that they are compared in, seeds and learning rates."""

import dataclasses
from collections.abc import Mapping, Sequence

from pods_jax.analysis.style import Look


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to spend rollouts.

    Attributes:
      look: in figures and tables.
      keys: of the config.
      rate_of: the method whose learning rate this one has; None: its own.
    """

    look: Look
    keys: Mapping[str, object]
    rate_of: str | None = None


@dataclasses.dataclass(frozen=True)
class Setting:
    """A task with a number of prompts a step: what the compared runs share.

    Attributes:
      name: of the setting, in file names and tables.
      spec, keys: the config, and values that differ from it.
      thresholds: accuracies to reach, fixed before the reported runs.
      by_method: further values of a method's config here, such as the steps that fit the same time.
      seeded: keys that have a trial's seed, beside the config's own.
    """

    name: str
    spec: str
    keys: Mapping[str, object]
    thresholds: Sequence[float] = ()
    by_method: Mapping[str, Mapping[str, object]] = dataclasses.field(default_factory=dict)
    seeded: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Extent:
    """All trials of a study.

    Attributes:
      settings: compared one after the other.
      methods: by name.
      waves: methods whose seeds are made together, seed by seed, after their learning rates are chosen; a wave is done
        before the next one begins.
      metric: the accuracy of an evaluation that counts.
      seeds: that are reported; tuning_seeds: that learning rates are chosen on.
      first_rate: the learning rate that is tried first; factor: between neighbouring rates.
      lowest_rate, highest_rate: bounds of the search.
    """

    settings: Sequence[Setting]
    methods: Mapping[str, Method]
    waves: Sequence[Sequence[str]]
    metric: str = "greedy_accuracy"
    seeds: Sequence[int] = range(5)
    tuning_seeds: Sequence[int] = (100,)
    first_rate: float = 2e-5
    factor: float = 2.0
    lowest_rate: float = 6.25e-7
    highest_rate: float = 1.6e-4

    def setting(self, name: str) -> Setting:
        """The setting of a name."""
        return next(setting for setting in self.settings if setting.name == name)

    def keys_of(self, setting: str, method: str) -> dict[str, object]:
        """The values of a method's config in a setting that differ from its file, learning rate and seeds apart."""
        shared = self.setting(setting)
        return {**shared.keys, **self.methods[method].keys, **shared.by_method.get(method, {})}

    def cut(self, num_seeds: int | None) -> "Extent":
        """The same with only the first seeds of those that are reported; None: all."""
        return dataclasses.replace(self, seeds=self.seeds[:num_seeds])


def texts(keys: Mapping[str, object]) -> tuple[str, ...]:
    """Values of a config as overrides."""
    return tuple(f"{key}={value}" for key, value in keys.items())
