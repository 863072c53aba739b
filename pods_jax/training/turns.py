"""Rollouts of several turns: the policy and an environment take turns, and only the policy's tokens are trained on."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from pods_jax import environments
from pods_jax.buckets import bucket
from pods_jax.config.schema import EnvironmentConfig, RolloutConfig, to_dict
from pods_jax.data import Example
from pods_jax.data.tokenizers import Tokenizer
from pods_jax.environments import Step
from pods_jax.models.decoder import Params
from pods_jax.parallel.hosts import exchange, own_share
from pods_jax.rollout import Completions
from pods_jax.training.experience import Sampler
from pods_jax.training.threads import DaemonThreads


@dataclasses.dataclass(frozen=True)
class TurnSampler:
    """Samples rollouts of several turns; it is called like a `Sampler`.

    Attributes:
      sampler: samples a turn, with all that came before as its prompt.
      environment: the config's section.
    """

    sampler: Sampler
    environment: EnvironmentConfig

    @property
    def config(self) -> RolloutConfig:
        """The limits of the sampler."""
        return self.sampler.config

    def __call__(
        self,
        params: Params,
        prompts: Sequence[Sequence[int]],
        prompt_ids: Sequence[int],
        key: jax.Array,
        examples: Sequence[Example],
        *,
        num_generations: int | Sequence[int],
        first_samples: Sequence[int] | None = None,
        max_new_tokens: int | None = None,
        **options: Any,
    ) -> Completions:
        """Completions that hold all turns and observations of a rollout. Arguments as in `Sampler`.

        A rollout ends when its environment is done, after `environment.max_turns`, or at the limit of tokens, which
        observations count towards. Its environment does not see a turn that the limit cuts. An observation that leaves
        no room for another turn is left out; the rollout counts as truncated.

        The first turn is what the sampler returns without an environment. A later one's tokens depend on (key, prompt
        id, sample index, turn), what came before, and the parameters only.

        Raises:
          UserError: the environment fails, or the chat template does not take its observations.
        """
        draw = functools.partial(self.sampler, params, **options)
        sizes = {"num_generations": num_generations, "first_samples": first_samples, "max_new_tokens": max_new_tokens}
        first = draw(prompts, prompt_ids, key, **sizes)
        rollouts = Rollouts(first, prompts, num_generations, self.sampler.tokenizer, self.environment.role)
        ids = np.asarray(prompt_ids)[rollouts.prompt]
        samples = rollouts.sample + (0 if first_samples is None else np.asarray(first_samples)[rollouts.prompt])
        with DaemonThreads(self.environment.num_threads) as threads:
            partners = Partners(self.environment, [examples[p] for p in rollouts.prompt], threads)
            observations = rollouts.answered(np.arange(len(ids)), partners)
            for turn in range(1, self.environment.max_turns):
                live = rollouts.observing(observations)
                if not live.size:
                    break
                sizes = {"first_samples": samples[live].tolist(), "max_new_tokens": rollouts.room(live)}
                names = ids[live].tolist(), turn_key(key, turn)
                drawn = draw(rollouts.histories(live), *names, num_generations=1, **sizes)
                rollouts.extend(live, drawn)
                observations = rollouts.answered(live, partners)
        return rollouts.completions()


def turn_key(key: jax.Array, turn: int) -> jax.Array:
    """The key of turn 1, 2, ... after the first; it is no prompt's (see `draw.rollout_uniforms`): ids count from 0."""
    return jax.random.fold_in(key, np.uint32(2**32 - turn))


def check_environment(config: EnvironmentConfig, tokenizer: Tokenizer, example: Example) -> None:
    """Tries an environment on one example, with an empty turn.

    Raises:
      UserError: the environment fails, or its observation cannot be tokenised.
    """
    partner = environments.reset(config.name, to_dict(config)["options"], example)
    answer = environments.step(config.name, partner, "")
    tokenizer.encode_observation("" if answer.done else answer.observation, config.role)


class Partners:
    """The environments of R rollouts. Each process holds those of its own share, and hears of every step."""

    def __init__(self, config: EnvironmentConfig, examples: Sequence[Example], threads: DaemonThreads):
        self._name = config.name
        self._threads = threads
        self._own = own_share(len(examples))
        begin = functools.partial(environments.reset, config.name, to_dict(config)["options"])
        self._environments = threads.map(begin, examples[self._own])

    def step(self, rollouts: Int[np.ndarray, " k"], texts: Sequence[str]) -> list[Step]:
        """The environments' answers to turns of these rollouts, whose numbers rise."""
        own = [(i, text) for i, text in zip(rollouts, texts, strict=True) if self._own.start <= i < self._own.stop]
        partners = [self._environments[i - self._own.start] for i, _ in own]
        step = functools.partial(environments.step, self._name)
        answers = self._threads.map(step, partners, [text for _, text in own])
        return [Step(*answer) for answer in exchange(answers)]


class Rollouts:
    """R rollouts under way, a row each; every row ends with a turn of the policy's.

    Attributes:
      prompt, sample: [R] the place of each in the completions of the first turn.
    """

    def __init__(
        self, first: Completions, prompts: Sequence[Sequence[int]], num_generations: int | Sequence[int],
        tokenizer: Tokenizer, role: str,
    ):  # fmt: skip
        """first: the first turns of all rollouts; role: of observations in the chat template."""
        P, n, T = first.tokens.shape
        self.prompt, self.sample = np.nonzero(np.arange(n) < np.broadcast_to(num_generations, P)[:, None])
        self._first = first
        self._prompts = prompts
        self._tokenizer = tokenizer
        self._role = role
        place = self.prompt, self.sample
        self._tokens = first.tokens[place]
        self._logprobs = first.logprobs[place]
        self._lengths = first.lengths[place]
        self._truncated = first.truncated[place]
        self._mask = np.arange(T) < self._lengths[:, None]
        self._rewards = np.zeros(len(self.prompt))
        self._starts = np.zeros(len(self.prompt), int)

    def histories(self, rollouts: Int[np.ndarray, " k"]) -> list[list[int]]:
        """The token ids of prompts, turns and observations so far."""
        own = zip(self.prompt[rollouts], self._tokens[rollouts], self._lengths[rollouts], strict=True)
        return [[*self._prompts[p], *row[:length].tolist()] for p, row, length in own]

    def room(self, rollouts: Int[np.ndarray, " k"]) -> int:
        """The number of tokens for which the emptiest of these rows has room, rounded up to one of few sizes."""
        T = self._tokens.shape[1]
        return min(T, bucket(int(T - self._lengths[rollouts].min())))

    def extend(self, rollouts: Int[np.ndarray, " k"], drawn: Completions) -> None:
        """Appends the turns drawn, [k, 1] completions, of each row what it has room for."""
        starts = self._lengths[rollouts]
        counts = np.minimum(drawn.lengths[:, 0], self._tokens.shape[1] - starts)
        for i, start, count, tokens, logprobs in zip(
            rollouts, starts, counts, drawn.tokens[:, 0], drawn.logprobs[:, 0], strict=True
        ):
            new = slice(start, start + count)
            self._tokens[i, new] = tokens[:count]
            self._logprobs[i, new] = logprobs[:count]
            self._mask[i, new] = True
        self._starts[rollouts] = starts
        self._lengths[rollouts] = starts + counts
        self._truncated[rollouts] = drawn.truncated[:, 0] | (counts < drawn.lengths[:, 0])

    def answered(self, rollouts: Int[np.ndarray, " k"], partners: Partners) -> dict[int, str]:
        """Shows whole turns to the environments. Returns the observations of rollouts that go on, by their numbers."""
        whole = rollouts[~self._truncated[rollouts]]
        steps = partners.step(whole, [self._turn(i) for i in whole.tolist()])
        self._rewards[whole] += [step.reward for step in steps]
        return {int(i): step.observation for i, step in zip(whole, steps, strict=True) if not step.done}

    def observing(self, observations: Mapping[int, str]) -> Int[np.ndarray, " j"]:
        """Appends observations. Returns the rollouts with room for another turn; the others count as truncated."""
        return np.array([i for i, text in observations.items() if self._observe(i, text)], int)

    def completions(self) -> Completions:
        """The rows as completions."""
        P, n, T = self._first.tokens.shape
        whole = self._first._replace(
            loss_mask=np.zeros((P, n, T), bool),
            environment_rewards=np.zeros((P, n), np.float32),
            last_turns=np.zeros((P, n), np.int32),
        )
        rows = (self._tokens, self._logprobs, self._lengths, self._truncated, self._mask, self._rewards, self._starts)
        for out, own in zip(whole, rows, strict=True):
            out[self.prompt, self.sample] = own
        return whole

    def _turn(self, i: int) -> str:
        """The text of the latest turn."""
        return self._tokenizer.decode(self._tokens[i, self._starts[i] : self._lengths[i]].tolist())

    def _observe(self, i: int, text: str) -> bool:
        """Appends an observation if it leaves room for another token."""
        start = self._lengths[i]
        ended = int(self._tokens[i, start - 1]) in self._tokenizer.eos_ids
        ids = self._tokenizer.encode_observation(text, self._role, ended)
        if start + len(ids) >= self._tokens.shape[1]:
            self._truncated[i] = True
            return False
        self._tokens[i, start : start + len(ids)] = ids
        self._lengths[i] += len(ids)
        return True
