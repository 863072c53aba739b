"""The optimizer and the sharded update step."""

from pods_jax.learner.optimizer import make_optimizer
from pods_jax.learner.update import Batch, TrainState, init_state, make_update, state_shapes

__all__ = ["Batch", "TrainState", "init_state", "make_optimizer", "make_update", "state_shapes"]
