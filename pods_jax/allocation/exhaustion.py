"""What happens when a step can not get the groups it wants."""

from collections.abc import Sequence

from pods_jax.allocation.base import Exhausted
from pods_jax.errors import UserError
from pods_jax.records import Group

POLICIES = ("error", "train_partial", "stop")


def when_exhausted(policy: str, message: str, partial: Sequence[Group]) -> list[Group]:
    """The groups to train on all the same.

    Args:
      policy: "error", "train_partial" or "stop"; with nothing to train on, "train_partial" is "stop".
      message: why there are no more, and what else can be changed.
      partial: the step's groups so far.

    Raises:
      UserError: under "error".
      Exhausted: under "stop": the run ends in good order.
    """
    if policy == "train_partial" and partial:
        return list(partial)
    if policy == "error":
        raise UserError(f"{message}. Or set allocation.options.on_exhausted to 'train_partial' or 'stop'")
    raise Exhausted(message)
