"""Checkpoints through Orbax: device state, and the host's as JSON and arrays, with checks that they come back whole."""

import contextlib
import dataclasses
import io
import json
import logging
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jaxtyping import Array, Shaped, UInt8, UInt32

from pods_jax.config.schema import Config
from pods_jax.errors import UserError
from pods_jax.io import local_path, read_jsonl
from pods_jax.learner import TrainState
from pods_jax.model_files import resolve_model_path
from pods_jax.models.decoder import Params
from pods_jax.parallel.hosts import from_main, is_main
from pods_jax.rewards import RewardPool
from pods_jax.training.inputs import FROZEN
from pods_jax.training.memory import is_of_memory, naming_keys_for_memory
from pods_jax.training.prompts import load_data, load_test_data
from pods_jax.training.reporting import Reporter
from pods_jax.training.run import Run, make_run
from pods_jax.training.workdir import best_step, refuse_other_policy, saved_config


class Restored(NamedTuple):
    """A checkpoint's content; host and reference: as they were given to `Checkpoints.save`."""

    step: int
    state: TrainState
    host: dict[str, Any]
    reference: Params | None = None


class Checkpoints:
    """`workdir/checkpoints`: the newest `keep`, and the best."""

    def __init__(self, workdir: Path, keep: int):
        logging.getLogger("absl").addFilter(_not_from_orbax)
        self.path = (workdir / "checkpoints").absolute()
        self._workdir = workdir
        self._kept = _NewestAndBest(keep)
        options = ocp.CheckpointManagerOptions(preservation_policy=self._kept, create=True)
        self._manager = ocp.CheckpointManager(self.path, options=options)

    def save(
        self,
        step: int,
        state: TrainState,
        host: dict[str, Any],
        best_step: int | None = None,
        reference: Params | None = None,
    ) -> None:
        """Returns when the state has been copied; files are written in the background.

        host: JSON-able values and numpy arrays, nested in dicts and lists.
        best_step: the checkpoint that is kept whatever its age.
        reference: the KL's reference, where it follows the policy; None where each life can make it anew.

        Raises:
          UserError: this or the last checkpoint cannot be written. Those before are untouched.
        """
        self._kept.best = best_step
        plain, arrays = pack(host)
        devices = _on_devices(state, reference)
        args = ocp.args.Composite(
            state=ocp.args.StandardSave(devices),
            host=ocp.args.JsonSave(plain),
            arrays=ocp.args.StandardSave({"npz": arrays}),
            checks=ocp.args.JsonSave(_checks(devices, plain, arrays)),
        )
        with self._writing():
            self._manager.save(step, args=args)

    def restore(
        self,
        like: TrainState,
        warn: Callable[[str], None],
        step: int | None = None,
        reference: Params | None = None,
    ) -> Restored | None:
        """The newest checkpoint that is whole, laid out like `like`; None if none was ever written.

        warn: gets a line for each damaged one that is skipped.
        step: the one to take instead of the newest.
        reference: the layout of the reference, if it was saved.

        Raises:
          UserError: there are checkpoints, but all are damaged; or the one to take is.
        """
        devices = _on_devices(like, reference)
        abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), devices)
        steps = sorted((s for s in self._manager.all_steps() if step in (None, s)), reverse=True)
        for candidate in steps:
            try:
                return self._read(candidate, abstract)
            except Exception as error:  # damaged files make their readers raise anything
                if is_of_memory(error):
                    raise
                if step is not None:
                    raise UserError(
                        f"{self.path}: the checkpoint at step {step} is damaged ({_in_a_line(error)}); choose another"
                    ) from error
                warn(f"warning  the checkpoint at step {candidate} is damaged and skipped ({_in_a_line(error)})")
        if steps:
            raise UserError(f"{self.path}: every checkpoint is damaged; choose another --workdir to start anew")
        return None

    def set_aside_after(self, step: int) -> None:
        """Moves later checkpoints, which `restore` found damaged, to `workdir/damaged_checkpoints`."""
        for damaged in (s for s in self._manager.all_steps() if s > step and is_main()):
            aside = self._workdir / "damaged_checkpoints" / str(damaged)
            shutil.rmtree(aside, ignore_errors=True)
            aside.parent.mkdir(exist_ok=True)
            (self.path / str(damaged)).rename(aside)
        from_main(None)  # the others wait for it
        self._manager.reload()

    def latest_step(self) -> int | None:
        """The newest checkpoint's step."""
        return self._manager.latest_step()

    def close(self) -> None:
        """Waits for the last save.

        Raises:
          UserError: it could not be written.
        """
        with self._writing():
            self._manager.wait_until_finished()
        self._manager.close()

    def _read(self, step: int, abstract: dict[str, Any]) -> Restored:
        args = ocp.args.Composite(
            state=ocp.args.StandardRestore(abstract),
            host=ocp.args.JsonRestore(),
            arrays=ocp.args.StandardRestore(),
            checks=ocp.args.JsonRestore(),
        )
        restored = self._manager.restore(step, args=args)
        devices = restored["state"]
        plain = restored["host"]
        arrays = np.asarray(restored["arrays"]["npz"])
        if _checks(devices, plain, arrays) != restored["checks"]:
            raise ValueError("its content has changed")
        reference = devices.pop("reference", None)
        return Restored(step, TrainState(**devices), unpack(plain, arrays), reference)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:  # TensorStore reports a full disk as a ValueError
            raise UserError(f"{self.path}: a checkpoint cannot be written ({_in_a_line(error)})") from error


class _NewestAndBest:
    """An Orbax preservation policy."""

    def __init__(self, keep: int):
        self.keep = keep
        self.best: int | None = None

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
        steps = [checkpoint.step for checkpoint in checkpoints]
        return [step in (*steps[-self.keep :], self.best) for step in steps]


def _on_devices(state: TrainState, reference: Params | None) -> dict[str, Any]:
    """The part of a checkpoint that lies on the devices."""
    return state._asdict() | ({} if reference is None else {"reference": reference})


def _checks(devices: dict[str, Any], host: dict[str, Any], arrays: UInt8[np.ndarray, " bytes"]) -> dict[str, Any]:
    """Fingerprints that must be the same after a checkpoint was read."""
    fingerprints = [int(x) for x in jax.device_get(jax.tree.leaves(_fingerprints(devices)))]
    return {
        "state": fingerprints,
        "host": zlib.crc32(json.dumps(host, sort_keys=True).encode()),
        "arrays": zlib.crc32(arrays.tobytes()),
    }


@jax.jit
def _fingerprints(tree: Any) -> Any:
    return jax.tree.map(fingerprint, tree)


def fingerprint(x: Shaped[Array, "..."]) -> UInt32[Array, ""]:
    """A sum over the elements' bits, each times an odd number of its own, modulo 2^32.

    It differs if a single element does, and is the same on every mesh, as integer addition is associative.
    """
    bits = jax.lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}").astype(jnp.uint32)
    place = jnp.zeros(x.shape, jnp.uint32)
    stride = 1
    for axis in reversed(range(x.ndim)):
        place += jax.lax.broadcasted_iota(jnp.uint32, x.shape, axis) * jnp.uint32(stride % 2**32)
        stride *= x.shape[axis]
    return (bits * (2 * place + 1)).sum(dtype=jnp.uint32)


def _in_a_line(error: Exception) -> str:
    """The operating system's words where the message holds them, else its beginning."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    words = re.search(r": ([^:]+) \[os_error_code=", str(error))  # TensorStore's form
    return words[1] if words else (str(error).splitlines() or [type(error).__name__])[0][:120]


def _not_from_orbax(record: logging.LogRecord) -> bool:
    """Orbax logs the traceback of every error, in each of its threads, before it raises it."""
    return "orbax" not in record.pathname


# ---------------------------------------------------------------- a run restored


@contextlib.contextmanager
def restored_run(
    config: Config, workdir: str | Path, reporter: Reporter, checkpoint: str = "newest"
) -> Iterator[Run]:  # fmt: skip
    """The run of a workdir at a checkpoint, evaluated, sampled and laid out as the config says.

    Training went by the workdir's own config, of which model, adapters and data must be the given one's.
    checkpoint: "newest", "best" (see `training.keep_best`) or a step.

    Raises:
      UserError: the workdir holds no such checkpoint, or was made by another config, or on other frozen weights.
    """
    path = local_path(workdir, "workdir")
    if not (path / "checkpoints").is_dir():
        raise UserError(f"workdir {path} holds no checkpoint")
    saved = saved_config(path)
    refuse_other_policy(path, saved, config)
    allow = config.training.allow_replaced_inputs
    training = dataclasses.replace(saved.training, allow_replaced_inputs=allow)
    of_training = {name: getattr(saved, name) for name in OF_TRAINING} | {"training": training}
    config = dataclasses.replace(config, **of_training)
    step = _step(path, checkpoint)
    data = load_data(config)
    reporter.data(config, data)
    with RewardPool(num_workers=config.reward.num_workers) as pool, naming_keys_for_memory(config):
        run = make_run(config, data, pool, reporter.warm_start)
        checkpoints = Checkpoints(path, config.training.keep_checkpoints)
        restored = checkpoints.restore(run.state, reporter.message, step, run.moving_reference())
        checkpoints.close()
        if restored is None:
            raise UserError(f"workdir {path} holds no checkpoint '{checkpoint}'")
        reporter.message(f"policy   checkpoint at step {restored.step}")
        run.load(restored.step, restored.state, restored.host, restored.reference, FROZEN)
        yield run


@contextlib.contextmanager
def untrained_run(config: Config, reporter: Reporter) -> Iterator[Run]:
    """A run of the config before its first step, without an optimizer's state, to evaluate what it starts from.

    Raises:
      UserError: bad data, or no such model.
    """
    if config.model.path is not None:
        resolve_model_path(config.model.path)  # before the data, which may take long
    config = dataclasses.replace(config, objective=dataclasses.replace(config.objective, beta=0.0))
    data = load_test_data(config)
    with RewardPool(num_workers=config.reward.num_workers) as pool:
        yield make_run(config, data, pool, reporter.warm_start, optax.identity())


OF_TRAINING = ("seed", "warm_start", "allocation", "selection", "objective", "optimizer", "training")
"""Sections that decide the form of a checkpoint: the optimizer's state, the allocator's, the stream's."""


def _step(path: Path, checkpoint: str) -> int | None:
    """The step that a checkpoint's name stands for; None for the newest."""
    if checkpoint == "newest":
        return None
    step = best_step(read_jsonl(path / "eval.jsonl")) if checkpoint == "best" else checkpoint
    try:
        return int(step)
    except (TypeError, ValueError):
        raise UserError(f"workdir {path} holds no checkpoint '{checkpoint}' (newest, best, or a step)") from None


# ---------------------------------------------------------------- packing


_ARRAY = "__array__"  # {_ARRAY: i} stands for the i-th array


def pack(state: Any) -> tuple[Any, UInt8[np.ndarray, " bytes"]]:
    """Splits JSON-able values and numpy arrays, nested in dicts and lists: what JSON holds, and the arrays' bytes."""
    arrays: list[np.ndarray] = []

    def strip(node):
        if isinstance(node, np.ndarray):
            arrays.append(node)
            return {_ARRAY: len(arrays) - 1}
        if isinstance(node, dict):
            return {k: strip(v) for k, v in node.items()}
        return [strip(v) for v in node] if isinstance(node, list | tuple) else node

    plain = strip(state)
    file = io.BytesIO()
    np.savez(file, *arrays, allow_pickle=False)
    return plain, np.frombuffer(file.getvalue(), np.uint8)


def unpack(plain: Any, packed: UInt8[np.ndarray, " bytes"]) -> Any:
    """The state that was packed, arrays to the bit; tuples come back as lists."""
    arrays = np.load(io.BytesIO(packed.tobytes()), allow_pickle=False)

    def fill(node):
        if isinstance(node, dict):
            return arrays[f"arr_{node[_ARRAY]}"] if _ARRAY in node else {k: fill(v) for k, v in node.items()}
        return [fill(v) for v in node] if isinstance(node, list) else node

    return fill(plain)
