"""The verifiers, one file a task. Every file here is imported: a new task is one file."""

from pods_jax.registry import import_submodules

import_submodules(__name__)
