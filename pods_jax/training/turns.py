"""Rollouts of several turns: the policy and an environment take turns, and only the policy's tokens are trained on."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
from jaxtyping import Int

from pods_jax import environments
from pods_jax.buckets import bucket
from pods_jax.config.schema import EnvironmentConfig, to_dict
from pods_jax.data import Example
from pods_jax.data.tokenizers import Tokenizer
from pods_jax.environments import Step
from pods_jax.parallel.hosts import exchange, own_share
from pods_jax.rollout import Completions
from pods_jax.rollout.engine import Orders, SamplingParams
from pods_jax.training.threads import DaemonThreads


def generate_turns(
    generate: Callable[[Orders, SamplingParams], Completions], orders: Orders, sampling: SamplingParams,
    examples: Sequence[Example], tokenizer: Tokenizer, environment: EnvironmentConfig,
) -> Completions:  # fmt: skip
    """Completions that hold all turns and observations of a rollout.

    A rollout ends when its environment is done, after `environment.max_turns`, or at the limit of tokens, which
    observations count towards. Its environment does not see a turn that the limit cuts. An observation that leaves
    no room for another turn is left out; the rollout counts as truncated.

    The first turn is what `generate` returns without an environment. A later one's tokens depend on (key, prompt
    id, sample index, turn), what came before, and the parameters only.

    Args:
      generate: an engine's (see `rollout.engine.Engine`), which gets each turn with all that came before as its prompt.
      examples: those of the prompts.

    Raises:
      UserError: the environment fails, or the chat template does not take its observations.
    """
    first = generate(orders._replace(on_ended=None), sampling)  # with a turn no rollout has ended
    rollouts = Rollouts(first, orders.prompts, orders.counts, tokenizer, environment.role)
    ids = np.asarray(orders.prompt_ids)[rollouts.prompt]
    samples = rollouts.sample + np.asarray(orders.first_samples)[rollouts.prompt]
    with DaemonThreads(environment.num_threads) as threads:
        partners = Partners(environment, [examples[p] for p in rollouts.prompt], threads)
        observations = rollouts.answered(np.arange(len(ids)), partners)
        for turn in range(1, environment.max_turns):
            live = rollouts.observing(observations)
            if not live.size:
                break
            turns = Orders(
                prompts=rollouts.histories(live),
                counts=[1] * len(live),
                prompt_ids=ids[live].tolist(),
                first_samples=samples[live].tolist(),
                key=turn_key(orders.key, turn),
            )
            rollouts.extend(live, generate(turns, dataclasses.replace(sampling, max_new_tokens=rollouts.room(live))))
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
        self, first: Completions, prompts: Sequence[Sequence[int]], counts: Sequence[int],
        tokenizer: Tokenizer, role: str,
    ):  # fmt: skip
        """first: the first turns, `counts` of each prompt; role: of observations in the chat template."""
        _, n, T = first.tokens.shape
        self.prompt, self.sample = np.nonzero(np.arange(n) < np.asarray(counts)[:, None])
        self._first = first
        self._prompts = prompts
        self._tokenizer = tokenizer
        self._role = role
        place = self.prompt, self.sample
        self._tokens = first.tokens[place]
        self._logprobs = first.logprobs[place]
        self._drawn_logprobs = None if first.drawn_logprobs is None else first.drawn_logprobs[place]
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
        for row, (i, start, count) in enumerate(zip(rollouts, starts, counts, strict=True)):
            new = slice(start, start + count)
            self._tokens[i, new] = drawn.tokens[row, 0, :count]
            self._logprobs[i, new] = drawn.logprobs[row, 0, :count]
            if self._drawn_logprobs is not None:
                self._drawn_logprobs[i, new] = drawn.drawn_logprobs[row, 0, :count]
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
        rows = {
            "logprobs": self._logprobs,
            "drawn_logprobs": self._drawn_logprobs,
            "lengths": self._lengths,
            "truncated": self._truncated,
            "loss_mask": self._mask,
            "environment_rewards": self._rewards.astype(np.float32),
            "last_turns": self._starts.astype(np.int32),
        }
        placed = {name: None if own is None else self._placed(own) for name, own in rows.items()}
        return Completions(tokens=self._placed(self._tokens, self._tokenizer.pad_id), **placed)

    def _placed(self, rows: np.ndarray, padding: int = 0) -> np.ndarray:
        """[P, n, ...] the rows at their places, and padding."""
        placed = np.full((*self._first.lengths.shape, *rows.shape[1:]), padding, rows.dtype)
        placed[self.prompt, self.sample] = rows
        return placed

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
