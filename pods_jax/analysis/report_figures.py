"""Figures of one run for its report: its health, the seconds of its steps, and the rewards that it kept and dropped."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pods_jax.analysis.curves import PHASES, phase_seconds, running_mean
from pods_jax.analysis.figures import smoothing
from pods_jax.analysis.runs import RunRecord
from pods_jax.buckets import ceil_div

HEALTH = {
    "completions/mean_length": "mean completion length (tokens)",
    "completions/clipped_ratio": "share of truncated completions",
    "entropy": "entropy (nats a token)",
    "grad_norm": "norm of the gradient",
    "frac_reward_zero_std": "share of groups with equal rewards",
    "kl": "KL from the reference (nats a token)",
    "sampling/sampling_logp_difference/mean": "sampler against learner (nats)",
    "staleness/mean": "staleness (steps)",
}
"""Metrics that tell of a run's health, with their labels."""


# ---------------------------------------------------------------- health


def health_columns(run: RunRecord) -> dict[str, np.ndarray]:
    """The metrics of `HEALTH` by label; those that the run lacks, or that stay 0, are left out."""
    columns = {label: _column(run.metrics, key) for key, label in HEALTH.items()}
    return {label: values for label, values in columns.items() if np.nan_to_num(values).any()}


def draw_health(figure: Figure, run: RunRecord) -> None:
    """A panel for each of `health_columns`: every step in grey, and running means over the steps that have a number."""
    columns = health_columns(run)
    steps = _column(run.metrics, "step")
    grid = list(figure.subplots(health_rows(run), 3, squeeze=False).flat)
    for axes, (label, values) in zip(grid, columns.items(), strict=False):
        axes.plot(steps, values, color="#B0B0B0", linewidth=0.6)
        known = ~np.isnan(values)
        axes.plot(steps[known], running_mean(values[known], smoothing(len(steps))))
        axes.set_title(label)
    for axes in grid[len(columns) :]:
        axes.remove()


def health_rows(run: RunRecord) -> int:
    """Rows of panels in `draw_health`."""
    return ceil_div(len(health_columns(run)), 3)


def _column(records: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    """One number of every record; NaN where it is absent or was not finite."""
    return np.array([np.nan if record.get(key) is None else record[key] for record in records], float)


# ---------------------------------------------------------------- seconds


def draw_seconds(figure: Figure, run: RunRecord) -> None:
    """The mean seconds of a step as a bar, phase after phase. run: with steps."""
    seconds = phase_seconds(run)
    names = (*PHASES, "other")
    starts = itertools.accumulate((seconds[name] for name in names), initial=0.0)
    axes = figure.subplots()
    for name, start, color in zip(names, starts, _COLORS, strict=False):
        axes.barh(0, seconds[name], left=start, label=f"{name} {seconds[name]:.2g} s", color=color)
    axes.set(xlabel=f"mean seconds of a step: {seconds['step']:.3g}", yticks=[])
    figure.legend(loc="outside upper left", ncols=len(names), columnspacing=1.0, handlelength=1.0)


_COLORS = ("#0072B2", "#56B4E9", "#009E73", "#E69F00", "#BBBBBB")


# ---------------------------------------------------------------- rewards


def draw_rewards(figure: Figure, run: RunRecord) -> None:
    """Rewards of the sampled groups: each rollout's at its step, and how they are distributed. run: with samples."""
    kept = np.concatenate([np.isin(np.arange(len(s["rewards"])), s["kept"]) for s in run.samples])
    steps = np.concatenate([np.full(len(s["rewards"]), s["step"], float) for s in run.samples])
    rewards = np.array([reward for s in run.samples for reward in s["rewards"]], float)  # None becomes NaN
    sorts = {"dropped": ~kept, "kept": kept}
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    _draw_dots(left, steps, rewards, sorts)
    _draw_shares(right, rewards, sorts)


_SORTS = {"dropped": "#B0B0B0", "kept": "#D55E00"}


def _draw_dots(axes: Axes, steps: np.ndarray, rewards: np.ndarray, sorts: Mapping[str, np.ndarray]) -> None:
    """Every rollout near its step and reward, so that equal ones are seen: dropped ones on the left of the step."""
    rng = np.random.default_rng(0)
    aside = rng.uniform(0.05, 0.4, len(steps)) * np.diff(np.unique(steps)).min(initial=steps.max())
    above = rng.uniform(-0.03, 0.03, len(steps)) * np.ptp(np.nan_to_num(rewards))
    for (name, rows), side in zip(sorts.items(), (-1, 1), strict=True):
        x = (steps + side * aside)[rows]
        axes.scatter(x, (rewards + above)[rows], s=5, color=_SORTS[name], label=name, linewidths=0)
    axes.set(xlabel="step", ylabel="reward")


def _draw_shares(axes: Axes, rewards: np.ndarray, sorts: Mapping[str, np.ndarray]) -> None:
    """Histograms of both sorts, each as shares of its own number."""
    finite = np.isfinite(rewards)
    edges = np.histogram_bin_edges(rewards[finite], bins=10)
    width = (edges[1] - edges[0]) / 2.5
    for i, (name, rows) in enumerate(sorts.items()):
        values = rewards[rows & finite]
        shares = np.histogram(values, edges)[0] / max(len(values), 1)
        axes.bar(edges[:-1] + (i + 0.75) * width, shares, width, color=_SORTS[name], label=f"{name} ({len(values):,})")
    axes.set(xlabel="reward", ylabel="share of its sort")
    axes.legend()
