"""Batches of kept rollouts, log-probabilities, the optimizer, and the sharded update."""

from pods_jax.learner.batch import Batch
from pods_jax.learner.optimizer import make_optimizer
from pods_jax.learner.state import TrainState, init_state, state_shapes
from pods_jax.learner.update import make_update

__all__ = ["Batch", "TrainState", "init_state", "make_optimizer", "make_update", "state_shapes"]
