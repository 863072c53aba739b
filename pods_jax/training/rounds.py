"""Rounds of requests and rollouts, until the allocator hands over groups to train on."""

from collections import defaultdict
from collections.abc import Sequence

import jax

from pods_jax.allocation.base import Exhausted
from pods_jax.records import Group, Request
from pods_jax.training.accounts import count_generated
from pods_jax.training.reference import penalised
from pods_jax.training.rollouts import rollout_groups
from pods_jax.training.run import Run


def collect_groups(run: Run, key: jax.Array, step: int) -> tuple[list[Group], list[Group]]:
    """All groups that the step generated, one a request, and those that it trains on.

    Raises:
      Exhausted: the allocator has no more to give; what was generated till then is in the totals.
    """
    generated: list[Group] = []
    taken: dict[int, list[range]] = defaultdict(list)
    with run.clock.phase("sample"):
        params = run.sampling_params()
    while True:
        requests = run.allocator.requests(run.stream)
        claim(taken, requests)
        groups = rollout_groups(run, params, requests, key, version=step - 1) if requests else []
        count_generated(run.totals, groups)
        if groups and run.config.objective.reward_beta:
            with run.clock.phase("verify"):
                groups = penalised(run, groups)
        generated += groups
        if ready := run.allocator.observe(groups):
            return generated, ready
        if not requests:
            raise Exhausted(
                f"allocation '{run.config.allocation.name}' neither asks for rollouts nor hands over groups"
            )


def claim(taken: dict[int, list[range]], requests: Sequence[Request]) -> None:
    """Adds the requests' sample indices to those taken in this step, by prompt uid; none may be asked for twice.

    A rollout's random numbers are named by the step, its prompt's uid and its sample index.
    """
    for request in requests:
        new = range(request.first, request.first + request.count)
        if any(new.start < old.stop and old.start < new.stop for old in taken[request.prompt.uid]):
            raise ValueError(
                f"prompt {request.prompt.uid}: samples {new.start} to {new.stop - 1} of the {request.stage} stage were "
                "partly asked for before in this step, and would repeat: see Request.first"
            )
        taken[request.prompt.uid].append(new)
