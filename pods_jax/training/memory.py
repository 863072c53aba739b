"""Out of memory, as one line that says which keys of the config lower what a step needs, and what they are now."""

import contextlib
from collections.abc import Iterator

import jax

from pods_jax.config.schema import Config, flat, to_dict
from pods_jax.errors import UserError

KEYS = {
    "sampling": ("rollout.max_cache_bytes_per_device",),
    "updates": (
        "optimizer.micro_batch_size_per_device", "model.remat", "model.attention", "optimizer.logprob_chunk_size",
    ),
    "evaluation": ("evaluation.batch_size",),
    "weights": ("mesh.fsdp",),
}  # fmt: skip
"""Keys that lower what each of these needs; all may change when a run goes on (`workdir.FREE`)."""


@contextlib.contextmanager
def naming_keys_for_memory(config: Config) -> Iterator[None]:
    """Turns the error of a device or host whose memory is too small into a UserError with the keys that help."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        if not is_of_memory(error):
            raise
        raise UserError(
            f"out of memory ({_first_line(error)}); what lowers it: {_values(config)}. docs/troubleshooting.md has the "
            "cost of each; the same command with other values goes on from the last checkpoint"
        ) from error


def is_of_memory(error: Exception) -> bool:
    """True for Python's error, and for XLA's of this kind, which says so in its code."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "MemoryError")[:200].rstrip(". ")


def _values(config: Config) -> str:
    values = flat(to_dict(config))
    listed = {phase: ", ".join(f"{key} = {values[key]!r}" for key in keys) for phase, keys in KEYS.items()}
    return "; ".join(f"for {phase}: {keys}" for phase, keys in listed.items())
