"""Requests to verified groups: sample on the devices; decode, verify and reward on the host."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from pods_jax.config.schema import RewardConfig, RolloutConfig
from pods_jax.data import Example, columns_of
from pods_jax.data.tokenizers import Tokenizer
from pods_jax.groups import Group, Prompt, Request
from pods_jax.models.decoder import Decoder, Params
from pods_jax.parallel.hosts import exchange, own_share
from pods_jax.rewards import RewardPool, Verdict
from pods_jax.rewards.parts import Outputs, compose, weights_of
from pods_jax.rollout import Completions, generate
from pods_jax.rollout.sampler import DRAWING
from pods_jax.rollout.stopping import StopStrings
from pods_jax.training.metrics import PhaseClock


@dataclasses.dataclass(frozen=True)
class Sampler:
    """Samples completions under a config's limits. sharding: of the prompts."""

    model: Decoder
    tokenizer: Tokenizer
    config: RolloutConfig
    sharding: jax.sharding.NamedSharding

    def __call__(
        self,
        params: Params,
        prompts: Sequence[Sequence[int]],
        prompt_ids: Sequence[int],
        key: jax.Array,
        *,
        num_generations: int | Sequence[int],
        stop: Sequence[str] = (),
        first_samples: Sequence[int] | None = None,
        max_new_tokens: int | None = None,
        **drawing: Any,
    ) -> Completions:
        """Completions of tokenised prompts (see `generate`).

        Args:
          stop: strings that end a completion.
          max_new_tokens: None: rollout.max_completion_length.
          drawing: options of the draw, by the names in `DRAWING`.
        """
        return generate(
            self.model,
            params,
            prompts,
            num_generations=num_generations,
            max_new_tokens=max_new_tokens or self.config.max_completion_length,
            key=key,
            **drawing,
            stops=StopStrings(self.tokenizer.decode, tuple(stop)) if stop else None,
            eos_ids=self.tokenizer.eos_ids,
            pad_id=self.tokenizer.pad_id,
            absent_ids=self.tokenizer.absent_ids(self.model.config.vocab_size),
            prompt_ids=prompt_ids,
            first_samples=first_samples,
            sharding=self.sharding,
            chunk_size=self.config.chunk_size,
            max_cache_bytes_per_device=self.config.max_cache_bytes_per_device,
        )


class Verified(NamedTuple):
    """R verified completions.

    Attributes:
      texts: decoded.
      correct: [R] raw correctness; reasons: [R] the verdicts' reasons; answers: [R] those that were read, or None.
      rewards: [R] the weighted sum of the parts; parts: [R] each, by name, NaN where one says nothing.
    """

    texts: list[str]
    correct: np.ndarray
    reasons: list[str]
    answers: list[str | None]
    rewards: np.ndarray
    parts: dict[str, np.ndarray]


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
        self, completions: Completions, examples: Sequence[Prompt | Example], counts: Sequence[int] | None = None
    ) -> Verified:
        """All completions, verified by all processes together; arguments as in `verify_share`."""
        return gathered(self.verify_share(completions, examples, counts))

    def verify_share(
        self, completions: Completions, examples: Sequence[Prompt | Example], counts: Sequence[int] | None = None
    ) -> Verified:
        """This process's share of the completions [P, n, T], each verified against its example; flat, group by group.

        Args:
          completions: the token axis has the length limit as its length.
          examples: P prompts or examples.
          counts: the number of real rows of each example (default: all n).
        """
        _, n, T = completions.tokens.shape
        counts = [n] * len(examples) if counts is None else counts
        real = np.arange(n) < np.array(counts)[:, None]
        own = own_share(sum(counts))
        examples = [e for e, count in zip(examples, counts, strict=True) for _ in range(count)][own]
        examples = [self.examples[e.index] if isinstance(e, Prompt) else e for e in examples]
        rows = zip(completions.tokens[real][own], completions.lengths[real][own], strict=True)
        completion_ids = [row[:length].tolist() for row, length in rows]
        texts = [self.tokenizer.decode(ids) for ids in completion_ids]
        outputs = Outputs(
            texts=texts,
            completion_ids=completion_ids,
            columns=columns_of(examples),
            correct=(),
            lengths=completions.lengths[real][own].tolist(),
            truncated=completions.truncated[real][own].tolist(),
            max_length=T,
            prefill=self.prefill,
            overlong_cache_length=self.config.overlong_cache_length,
        )
        verdicts = self._verdicts(outputs)
        outputs = dataclasses.replace(outputs, correct=[v.correct for v in verdicts])
        rewards, parts = compose(outputs, weights_of(self.config.parts), dict(self.config.functions))
        reasons = [v.reason for v in verdicts]
        return _columns(texts, outputs.correct, reasons, [v.answer for v in verdicts], rewards, parts)

    def _verdicts(self, outputs: Outputs) -> list[Verdict]:
        """Verifiers see the prefill too; functions of the user's get the completions as they are, as TRL's do."""
        start = "" if ":" in self.task else self.prefill
        texts = [start + text for text in outputs.texts]
        golds = outputs.columns["gold"]
        return self.pool.score(texts, golds, self.task, self.config.deadline_s, columns=outputs.arguments())


def gathered(own: Verified) -> Verified:
    """The shares of all processes, in order. All must call it, from their main thread."""
    columns = (
        own.texts,
        own.correct.tolist(),
        own.reasons,
        own.answers,
        own.rewards.tolist(),
        *(p.tolist() for p in own.parts.values()),
    )
    texts, correct, reasons, answers, rewards, *parts = zip(*exchange([*zip(*columns, strict=True)]), strict=True)
    return _columns(texts, correct, reasons, answers, rewards, dict(zip(own.parts, parts, strict=True)))


def _columns(texts, correct, reasons, answers, rewards, parts) -> Verified:
    return Verified(
        list(texts),
        np.array(correct, bool),
        list(reasons),
        list(answers),
        np.array(rewards, np.float32),
        {name: np.array(values) for name, values in parts.items()},
    )


def rollout_groups(
    sampler: Sampler, rewarder: Rewarder, params: Params, requests: Sequence[Request], key: jax.Array, version: int,
    clock: PhaseClock,
) -> list[Group]:  # fmt: skip
    """One verified group a request, in order. version: the policy's."""
    prompts = [request.prompt for request in requests]
    counts = [request.count for request in requests]
    with clock.phase("sample"):
        c = sampler(
            params,
            [prompt.tokens for prompt in prompts],
            [prompt.uid for prompt in prompts],
            key,
            num_generations=counts,
            first_samples=[request.first for request in requests],
            stop=sampler.config.stop,
            **{name: getattr(sampler.config, name) for name in DRAWING},
        )
    with clock.phase("verify"):
        verified = rewarder(c, prompts, counts)
    ends = np.cumsum(counts)
    rows = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    places = zip(requests, range(len(requests)), rows, strict=True)
    return [_group(request, c, place, verified, own, version) for request, place, own in places]


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
        drawn_logprobs=None if c.drawn_logprobs is None else c.drawn_logprobs[place, :n],
    )
