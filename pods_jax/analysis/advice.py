"""Advice from a run with measured noise scales: whether PODS and Pilot-Commit would pay in place of GRPO."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pods_jax.allocation.pilot_commit import PilotCommitOptions
from pods_jax.analysis.regimes import (
    GRID,
    Factors,
    MethodModel,
    factors,
    grpo,
    pilot_commit,
    pods,
    step_ratio,
    success_rates,
    transferred,
)
from pods_jax.errors import UserError
from pods_jax.io import read_json, read_jsonl
from pods_jax.noise_scale import NoiseScale

DRAWS = 2000
"""Draws from the estimates' normal distribution, whose central 95 % make an interval."""
PODS_FACTOR = 4
"""n / m of the PODS that a run of GRPO is compared with: 64 -> 16, as in the paper."""


@dataclasses.dataclass(frozen=True)
class Seconds:
    """Seconds of a step: fixed, for each generated rollout (sampled and verified), and for each that is trained on."""

    fixed: float
    generated: float
    trained: float

    def step(self, found: Factors, num_prompts: int) -> float:
        """Seconds of a step of a method on `num_prompts` prompts; found: the method's factors."""
        return self.fixed + num_prompts * (self.generated * found.generated + self.trained * found.m)


@dataclasses.dataclass(frozen=True)
class Measured:
    """A run's regime, as the run itself measured it.

    Attributes:
      scale: pooled over the run's measurements, which are at `steps`.
      weights: shares of the prompts by success rate, on `regimes.GRID`.
      num_prompts, n, m, method, scale_rewards: of the run.
    """

    scale: NoiseScale
    steps: Sequence[int]
    weights: np.ndarray
    seconds: Seconds
    num_prompts: int
    n: int
    m: int
    method: MethodModel
    scale_rewards: str


@dataclasses.dataclass(frozen=True)
class Advice:
    """A method beside GRPO, both on as many prompts a step as the run.

    Attributes:
      name, baseline: both with their sizes.
      steps, seconds: GRPO's steps over the method's, and the same of the time, each with its 95 % interval.
      step_cost: seconds of the method's step over one of GRPO.
    """

    name: str
    baseline: str
    steps: tuple[float, float, float]
    seconds: tuple[float, float, float]
    step_cost: float

    @property
    def verdict(self) -> str:
        """Whether the method pays, as far as the interval of the ratio of time tells."""
        _, low, high = self.seconds
        return "pays" if low > 1 else "does not pay" if high < 1 else "undecided"

    def __str__(self) -> str:
        return (
            f"{self.name} over {self.baseline}: {self.verdict}; {_ratio(self.steps)} in steps, a step costs "
            f"{self.step_cost:.2f}x, {_ratio(self.seconds)} in time"
        )


def _ratio(found: tuple[float, float, float]) -> str:
    return "{:.2f}x [{:.2f}, {:.2f}]".format(*found)


# ---------------------------------------------------------------- the prediction


def advise(measured: Measured) -> list[Advice]:
    """PODS and Pilot-Commit beside GRPO with as many trained rollouts, predicted by `pods_jax.analysis.regimes`.

    PODS generates four times as many as a run with n = m; Pilot-Commit has groups of n and the defaults of its
    allocator.
    """
    m = measured.m
    n = measured.n if measured.n > m else PODS_FACTOR * m
    pairs = [(f"PODS {n} -> {m}", pods(n, m), m)]
    if measured.n >= 8:
        options = PilotCommitOptions()
        pilot, _, commit = options.sizes(measured.n)
        method = pilot_commit(pilot, commit, options.p_lower, options.p_upper)
        pairs.append((f"Pilot-Commit {pilot} + {commit}", method, measured.n))
    return [_advice(name, method, size, measured) for name, method, size in pairs]


def _advice(name: str, method: MethodModel, size: int, measured: Measured) -> Advice:
    ours = _factors(measured, method)
    theirs = _factors(measured, grpo(size))
    cost = measured.seconds.step(ours, measured.num_prompts) / measured.seconds.step(theirs, measured.num_prompts)
    own = _factors(measured, measured.method)
    steps = predicted_ratio(measured.scale, measured.num_prompts, own, theirs, ours)
    return Advice(name, f"GRPO {size} -> {size}", steps, tuple(r / cost for r in steps), cost)


def predicted_ratio(
    scale: NoiseScale, num_prompts: int, own: Factors, baseline: Factors, method: Factors
) -> tuple[float, float, float]:
    """The baseline's steps over the method's, with its interval. own: of the method that was measured."""
    estimates = np.array([scale.signal, scale.inter, scale.intra])
    draws = np.random.default_rng(0).multivariate_normal(estimates, scale.covariance, DRAWS)
    ratios = step_ratio(*(transferred(np.vstack([estimates, draws]), own, f) for f in (baseline, method)), num_prompts)
    return float(ratios[0]), *map(float, np.quantile(ratios[1:], (0.025, 0.975)))


def _factors(measured: Measured, method: MethodModel) -> Factors:
    return factors(method, GRID, measured.weights, measured.scale_rewards)


# ---------------------------------------------------------------- a run's own numbers


def read_measured(workdir: Path) -> Measured:
    """The regime of a run, finished or not, from its files.

    Raises:
      UserError: no run, no measured noise scale, none with three prompts or with right and wrong rollouts of one, or a
        method that the model does not describe.
    """
    config = read_json(workdir / "config.json")
    records = read_jsonl(workdir / "noise_scale.jsonl")
    if not records:
        raise UserError(
            f"{workdir} has no measured noise scale: train with --config.diagnostics.noise_scale_every_steps=50"
        )
    if not any(0 < s < r["rollouts"] for r in records for s in r["successes"]):
        raise UserError(f"{workdir}: no prompt had right and wrong rollouts, so that no gradient was measured")
    rollout = config["rollout"]
    n = rollout["num_generations"]
    m = config["selection"]["num_kept"]
    return Measured(
        scale=pooled(records),
        steps=[r["step"] for r in records],
        weights=success_rates(np.concatenate([r["successes"] for r in records]), records[0]["rollouts"]),
        seconds=seconds_of(read_jsonl(workdir / "metrics.jsonl")),
        num_prompts=rollout["num_prompts"],
        n=n,
        m=m,
        method=_method_of(config, n, m),
        scale_rewards=config["objective"]["scale_rewards"],
    )


def _method_of(config: Mapping[str, Any], n: int, m: int) -> MethodModel:
    rule = config["selection"]["rule"]
    if rule not in ("all", "random", "max_variance", "max_variance_authors"):
        raise UserError(f"selection.rule = '{rule}': advice knows all, random and max_variance only")
    if config["objective"]["scale_rewards"] not in ("group", "none"):
        raise UserError("objective.scale_rewards: advice knows 'group' and 'none' only")
    return grpo(m) if rule in ("all", "random") else pods(n, m)


def pooled(records: Sequence[Mapping[str, Any]]) -> NoiseScale:
    """Means of signal, inter and intra over measurements, before any division.

    The covariance is that of the means as far as each measurement knows its own: it leaves out that the policy changes.
    """
    values = np.array([[r[name] for name in ("signal", "inter", "intra")] for r in records], float)
    covariances = np.array([r["covariance"] for r in records], float)
    if not np.isfinite(covariances).all():
        raise UserError("diagnostics.noise_scale_num_prompts must be at least 3 for an interval, and so for advice")
    count = sum(r["count"] - 1 for r in records) + 1
    return NoiseScale(*map(float, values.mean(0)), covariances.mean(0) / len(records), count)


def seconds_of(metrics: Sequence[Mapping[str, Any]]) -> Seconds:
    """A step's seconds from a run's log, medians without its first step, which begins with compilation.

    All of sampling, verification and update counts as proportional to rollouts, and only the rest as fixed: a method of
    other sizes is not further from the run than this says.
    """
    steps = metrics[1:] or metrics
    if not steps:
        raise UserError("the run has no step yet, of which to take seconds")

    def median(*names: str) -> float:
        return float(np.median([sum(step.get(f"time/{name}_s") or 0.0 for name in names) for step in steps]))

    last = metrics[-1]
    generated, trained = (max(1.0, last[f"rollouts/{kind}"] / last["step"]) for kind in ("generated", "trained"))
    rollouts = median("sample", "verify")
    update = median("update")
    return Seconds(max(0.0, median("step") - rollouts - update), rollouts / generated, update / trained)


def lines(measured: Measured, advices: Sequence[Advice]) -> list[str]:
    """The regime and the advice, for a person."""
    rare, sure = measured.weights[GRID <= 0.05].sum(), measured.weights[GRID >= 0.95].sum()
    at = f"step {measured.steps[0]}" + (f" to {measured.steps[-1]}" if len(measured.steps) > 1 else "")
    return [
        f"noise    {measured.scale}; P = {measured.num_prompts}, n = {measured.n}, m = {measured.m}; "
        f"{len(measured.steps)} measurement(s), {at}",
        f"prompts  mean success rate {measured.weights @ GRID:.1%}; {rare:.0%} of the prompts at 5 % or less, "
        f"{sure:.0%} at 95 % or more",
        *(f"advice   {advice}" for advice in advices),
    ]
