"""The interface of an environment, and calls of a user's, whose every failure is an error of one line."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from pods_jax.data.examples import Example
from pods_jax.errors import UserError, raised
from pods_jax.fields import shown
from pods_jax.registry import Registry


@runtime_checkable
class Environment(Protocol):
    """The policy's partner in one rollout.

    Its answers must depend only on the example and the turns: then a run that is stopped goes on to the same end.
    """

    def reset(self, example: Example) -> None:
        """Begins a rollout on an example, whose prompt the policy is about to see."""

    def step(self, text: str) -> tuple[str, float, bool]:
        """Answers a whole turn of the policy's, without the token that ends it.

        Returns:
          observation: text that the policy sees before its next turn.
          reward: finite; the sum over a rollout's turns is the reward part "environment".
          done: True ends the rollout, and nobody sees the observation.
        """


class Step(NamedTuple):
    """The result of an environment's `step`."""

    observation: str
    reward: float
    done: bool


ENVIRONMENTS: Registry[Callable[..., Environment]] = Registry("environment.name")
"""Classes by name, or functions that make an environment. They are called with the config's options as keywords."""

register = ENVIRONMENTS.register


def option_problems(name: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Violations of a registered environment's signature by its options, in words."""
    try:
        inspect.signature(ENVIRONMENTS[name]).bind(**options)
    except TypeError as error:
        yield f"environment.options of '{name}': {error}"


def reset(name: str, options: Mapping[str, Any], example: Example) -> Environment:
    """A new environment for a rollout on the example.

    Raises:
      UserError: it raises, or `reset` returns something.
    """
    environment = _called(name, "__init__", lambda: ENVIRONMENTS[name](**options))
    returned = _called(name, "reset", lambda: environment.reset(example))
    if returned is not None:
        raise UserError(
            f"environment '{name}': reset must return None, as the prompt is the example's; got {shown(returned)}"
        )
    return environment


def step(name: str, environment: Environment, text: str) -> Step:
    """The environment's answer to a turn.

    Raises:
      UserError: it raises, or returns something else than a text, a finite number, and True or False.
    """
    returned = _called(name, "step", lambda: environment.step(text))
    if not _is_step(returned):
        raise UserError(
            f"environment '{name}': step must return (observation, reward, done): a text, a finite number, and True or "
            f"False; got {shown(returned)}"
        )
    observation, reward, done = returned
    return Step(observation, float(reward), bool(done))


def _called(name: str, method: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        raise UserError(f"environment '{name}': {method} raised {raised(error)}") from error


def _is_step(value: Any) -> bool:
    """Whether a value is what a step may be. NumPy's scalars pass, as they compare like Python's."""
    try:
        observation, reward, done = value
        return isinstance(observation, str) and math.isfinite(reward) and done in (True, False)
    except (TypeError, ValueError, OverflowError):
        return False
