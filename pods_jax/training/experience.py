"""Requests to verified groups: sample on the devices; decode, verify and reward on the host."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from pods_jax.config.schema import RewardConfig, RolloutConfig
from pods_jax.data import Example, columns_of
from pods_jax.data.tokenizers import Tokenizer
from pods_jax.groups import Group, Prompt, Request
from pods_jax.parallel.hosts import exchange, own_share
from pods_jax.rewards import FORMATS, RewardPool, Verdict
from pods_jax.rewards.parts import Outputs, compose, weights_of
from pods_jax.rollout import Completions
from pods_jax.rollout.engine import Orders, SamplingParams, sampling_params


class Verified(NamedTuple):
    """R verified completions.

    Attributes:
      texts: decoded.
      correct: [R] raw correctness; reasons: [R] the verdicts' reasons; answers: [R] those that were read, or None.
      rewards: [R] the weighted sum of the parts; parts: [R] each, by name, NaN where one says nothing.
      formatted: [R] the value of the format that evaluations report.
    """

    texts: list[str]
    correct: np.ndarray
    reasons: list[str]
    answers: list[str | None]
    rewards: np.ndarray
    formatted: np.ndarray
    parts: dict[str, np.ndarray]


class Share(NamedTuple):
    """R rollouts of P prompts, group by group.

    Attributes:
      prompts, samples: [R] the place of each among P completions of n rollouts.
      columns: [R] each, the fields of their examples by name (see `columns_of`).
    """

    prompts: np.ndarray
    samples: np.ndarray
    columns: Mapping[str, Sequence[Any]]

    def take(self, rows: Sequence[int]) -> "Share":
        """Only these rows."""
        columns = {name: [values[row] for row in rows] for name, values in self.columns.items()}
        return Share(self.prompts[rows], self.samples[rows], columns)


class Read(NamedTuple):
    """A completion that was decoded and verified."""

    text: str
    verdict: Verdict


Early = Callable[[], Mapping[int, Read]]
"""Gives what was read of a share before it was whole, by the numbers of its rows."""

NOTHING: Mapping[int, Read] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Rewarder:
    """Decodes, verifies and rewards completions.

    Attributes:
      task: the verifier's name.
      examples: the training examples, by the index of their prompts.
      prefill: what the prompts' template already wrote of the output (see `rewards.extract.prefill`).
    """

    config: RewardConfig
    tokenizer: Tokenizer
    task: str
    pool: RewardPool
    examples: Sequence[Example] = ()
    prefill: str = ""

    def __call__(
        self, completions: Completions, examples: Sequence[Prompt | Example], counts: Sequence[int] | None = None,
        early: Early = dict,
    ) -> Verified:  # fmt: skip
        """All completions, verified by all processes together; arguments as in `verify_share`."""
        return gathered(self.verify_share(completions, examples, counts, early))

    def verify_share(
        self, completions: Completions, examples: Sequence[Prompt | Example], counts: Sequence[int] | None = None,
        early: Early = dict,
    ) -> Verified:  # fmt: skip
        """This process's share of the completions [P, n, T], each verified against its example; flat, group by group.

        Args:
          completions: the token axis has the length limit as its length.
          examples: P prompts or examples.
          counts: the number of real rows of each example (default: all n).
          early: gives what was read of the share while others were generated.
        """
        counts = [completions.tokens.shape[1]] * len(examples) if counts is None else counts
        share = self.share(examples, counts)
        known = early()
        outputs = self._outputs(completions, share, known)
        verdicts = self._all_verdicts(outputs, known)
        outputs = dataclasses.replace(outputs, correct=[v.correct for v in verdicts])
        rewards, parts = compose(outputs, weights_of(self.config.parts), dict(self.config.functions))
        reasons = [v.reason for v in verdicts]
        formatted = list(map(FORMATS[self.config.format], outputs.as_read))
        answers = [v.answer for v in verdicts]
        return _columns(outputs.texts, outputs.correct, reasons, answers, rewards, formatted, parts)

    def share(self, examples: Sequence[Prompt | Example], counts: Sequence[int]) -> Share:
        """The rollouts that this process verifies. counts: the number of each example's."""
        own = own_share(sum(counts))
        prompts = np.repeat(np.arange(len(counts)), counts)[own]
        samples = np.array([sample for count in counts for sample in range(count)], int)[own]
        return Share(prompts, samples, columns_of(self.examples_of([examples[p] for p in prompts])))

    def read(self, completions: Completions, share: Share, rows: Sequence[int]) -> dict[int, Read]:
        """These rows of a share, decoded and verified, by their numbers."""
        outputs = self._outputs(completions, share.take(rows))
        return dict(zip(rows, map(Read, outputs.texts, self._verdicts(outputs)), strict=True))

    def examples_of(self, prompts: Sequence[Prompt | Example]) -> list[Example]:
        """The examples of prompts; examples stay as they are."""
        return [self.examples[p.index] if isinstance(p, Prompt) else p for p in prompts]

    def _outputs(self, completions: Completions, share: Share, known: Mapping[int, Read] = NOTHING) -> Outputs:
        """The completions of a share, before verification. known: what was read of it before."""
        place = share.prompts, share.samples
        rows = zip(completions.tokens[place], completions.lengths[place], strict=True)
        completion_ids = [row[:length].tolist() for row, length in rows]
        return Outputs(
            texts=[
                known[row].text if row in known else self.tokenizer.decode(ids)
                for row, ids in enumerate(completion_ids)
            ],
            completion_ids=completion_ids,
            columns=share.columns,
            correct=(),
            lengths=completions.lengths[place].tolist(),
            truncated=completions.truncated[place].tolist(),
            max_length=completions.tokens.shape[-1],
            **self._of_turns(completions, place, completion_ids),
            prefill=self.prefill,
            overlong_cache_length=self.config.overlong_cache_length,
        )

    def _of_turns(
        self, completions: Completions, place: tuple[np.ndarray, np.ndarray], completion_ids: Sequence[Sequence[int]]
    ) -> dict[str, Sequence[Any]]:
        """The fields of `Outputs` that rollouts of several turns have."""
        if completions.loss_mask is None:
            return {}
        starts = completions.last_turns[place]
        return {
            "last_turns": [self.tokenizer.decode(ids[at:]) for ids, at in zip(completion_ids, starts, strict=True)],
            "environment_rewards": completions.environment_rewards[place].tolist(),
        }

    def _all_verdicts(self, outputs: Outputs, known: Mapping[int, Read]) -> list[Verdict]:
        """Verdicts on all outputs; only those that are not known are verified."""
        rows = range(len(outputs.texts))
        rest = [row for row in rows if row not in known]
        new = dict(zip(rest, self._verdicts(outputs.take(rest)), strict=True))
        verdicts = [new[row] if row in new else known[row].verdict for row in rows]
        self.pool.note(self.task, verdicts)
        return verdicts

    def _verdicts(self, outputs: Outputs) -> list[Verdict]:
        """Verifiers see the prefill too; functions of the user's get the outputs as they are, as TRL's do."""
        if ":" in self.task:
            outputs = dataclasses.replace(outputs, prefill="")
        texts = outputs.as_read
        golds = outputs.columns["gold"]
        return self.pool.verdicts(texts, golds, self.task, self.config.deadline_s, columns=outputs.arguments())


def gathered(own: Verified) -> Verified:
    """The shares of all processes, in order. All must call it, from their main thread."""
    columns = (
        own.texts,
        own.correct.tolist(),
        own.reasons,
        own.answers,
        own.rewards.tolist(),
        own.formatted.tolist(),
        *(p.tolist() for p in own.parts.values()),
    )
    rows = exchange([*zip(*columns, strict=True)])
    texts, correct, reasons, answers, rewards, formatted, *parts = zip(*rows, strict=True)
    return _columns(texts, correct, reasons, answers, rewards, formatted, dict(zip(own.parts, parts, strict=True)))


def _columns(texts, correct, reasons, answers, rewards, formatted, parts) -> Verified:
    return Verified(
        list(texts),
        np.array(correct, bool),
        list(reasons),
        list(answers),
        np.array(rewards, np.float32),
        np.array(formatted, float),
        {name: np.array(values) for name, values in parts.items()},
    )


def orders_of(requests: Sequence[Request], key: jax.Array) -> Orders:
    """The requests as an engine takes them. key: the step's."""
    return Orders(
        prompts=[request.prompt.tokens for request in requests],
        counts=[request.count for request in requests],
        prompt_ids=[request.prompt.uid for request in requests],
        first_samples=[request.first for request in requests],
        key=key,
    )


def training_params(config: RolloutConfig) -> SamplingParams:
    """The distribution and limit of a step's rollouts."""
    return sampling_params(config, max_new_tokens=config.max_completion_length)


def verified_groups(
    rewarder: Rewarder, requests: Sequence[Request], completions: Completions, version: int, early: Early = dict
) -> list[Group]:
    """One verified group a request, in order.

    version: of the policy that generated the completions; early: see `Rewarder.verify_share`.
    """
    counts = [request.count for request in requests]
    verified = rewarder(completions, [request.prompt for request in requests], counts, early)
    ends = np.cumsum(counts)
    rows = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    places = zip(requests, range(len(requests)), rows, strict=True)
    return [_group(request, completions, place, verified, own, version) for request, place, own in places]


def _group(request: Request, c: Completions, place: int, verified: Verified, own: slice, version: int) -> Group:
    """The group of completions c[place], which are `own` among the verified ones."""
    n = request.count
    return Group(
        request=request,
        tokens=c.tokens[place, :n],
        logprobs=c.logprobs[place, :n],
        lengths=c.lengths[place, :n],
        truncated=c.truncated[place, :n],
        texts=tuple(verified.texts[own]),
        rewards=verified.rewards[own],
        correct=verified.correct[own],
        policy_versions=np.full(n, version),
        reasons=tuple(verified.reasons[own]),
        parts={name: values[own] for name, values in verified.parts.items()},
        loss_mask=None if c.loss_mask is None else c.loss_mask[place, :n],
        drawn_logprobs=None if c.drawn_logprobs is None else c.drawn_logprobs[place, :n],
    )
