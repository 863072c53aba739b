"""A run's folder: its config, its lock, and its append-only JSON-lines files."""

import fcntl
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pods_jax.config.load import freeze, import_origin
from pods_jax.config.schema import Config, flat, to_dict, with_defaults
from pods_jax.errors import UserError
from pods_jax.io import finite, local_path, make_folder, read_json, read_jsonl, write_atomic, writing
from pods_jax.parallel.hosts import from_main, is_main

FREE = (
    "mesh.", "model.attention", "model.remat", "optimizer.micro_batch_size_per_device", "optimizer.logprob_chunk_size",
    "rollout.attention", "rollout.chunk_size", "rollout.max_cache_bytes_per_device", "rollout.engine",
    "evaluation.batch_size",
    "reward.num_workers", "training.max_minutes", "training.checkpoint_every_", "training.keep_",
    "training.max_skipped_updates", "training.log_samples_every_steps", "training.allow_replaced_inputs", "logging.",
    "diagnostics.",
)  # fmt: skip
"""Keys, or how they begin, that may change when a run goes on: they say where and how it is computed, not what."""

LOCK = ".lock"
SUMMARY = "summary.json"
"""Written last: a workdir that has it is finished."""
ORIGIN = "origin.json"
POLICY = ("model.", "lora.", "data.")
"""Beginnings of the keys that decide what a checkpoint holds, and which problems are solved."""


class Workdir:
    """An open, locked workdir; a second run in it is refused until this one is closed, or its process has ended.

    Of several processes that work together only the main one writes; all get what it reads.
    """

    def __init__(self, path: str | Path, config: Config, origin: Mapping[str, str] | None = None):
        """Creates the folder, or joins one that the same config made.

        origin: where the config came from, for `saved_config` (see `pods_jax.config.load.origin_of`).

        Raises:
          UserError: unwritable, in use by a live run, or made by another config.
        """
        self.path = local_path(path, "workdir")
        self._writes = is_main()
        refuse_other_config(self.path, config)
        if not self._writes:
            return
        make_folder(self.path, "workdir")
        with writing(self.path):
            self._lock = open(self.path / LOCK, "w")  # noqa: SIM115 - held for the life of the run
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise UserError(f"workdir {self.path} is in use by another run") from e
        text = json.dumps(to_dict(config), indent=2) + "\n"
        file = self.path / "config.json"
        with writing(self.path):
            if not file.is_file() or file.read_text(encoding="utf-8") != text:
                write_atomic(file, text)
            if origin is not None:
                write_atomic(self.path / ORIGIN, json.dumps(origin, indent=2) + "\n")

    def close(self) -> None:
        """Gives the lock back."""
        if self._writes:
            self._lock.close()

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        """Adds one line to a JSON-lines file, flushed to the system before it returns; NaN becomes null."""
        if not self._writes:
            return
        with writing(self.path), open(self.path / name, "a", encoding="utf-8") as f:
            f.write(json.dumps(finite(dict(record))) + "\n")

    def append_text(self, name: str, text: str) -> None:
        """Adds to a text file."""
        if self._writes:
            with writing(self.path), open(self.path / name, "a", encoding="utf-8") as f:
                f.write(text)

    def write(self, name: str, text: str) -> None:
        """Replaces a text file as a whole."""
        if self._writes:
            with writing(self.path):
                write_atomic(self.path / name, text)

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        if self._writes:
            with writing(self.path):
                (self.path / name).unlink(missing_ok=True)

    def save_arrays(self, name: str, arrays: Mapping[str, Any]) -> Path:
        """Writes those that are not None as an .npz file."""
        with writing(self.path):
            if self._writes:
                np.savez(self.path / name, **{k: v for k, v in arrays.items() if v is not None})
        return self.path / name

    def read(self, name: str) -> list[dict[str, Any]]:
        """All whole lines of a JSON-lines file, as the main process sees it; a line torn by a kill is left out."""
        return from_main(read_jsonl(self.path / name) if self._writes else None)

    def truncate(self, name: str, last_step: int) -> None:
        """Drops all after the last line of a step up to `last_step`, damaged or not: a resumed run writes it again."""
        if not self._writes:
            return
        file = self.path / name
        lines = file.read_bytes().splitlines(keepends=True) if file.is_file() else []
        reached = [i for i, line in enumerate(lines) if _step_of(line) is not None and _step_of(line) <= last_step]
        with writing(self.path):
            write_atomic(file, b"".join(lines[: reached[-1] + 1 if reached else 0]).decode(errors="replace"))


def _step_of(line: bytes) -> int | None:
    """The step of a log line; None for one that is damaged."""
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return None


def is_workdir(path: Path) -> bool:
    """True for a folder that a run has made."""
    return (path / LOCK).is_file() and (path / "config.json").is_file()


def ends_as(path: Path, config: Config) -> bool:
    """True if the workdir's config has the same end, in steps and minutes."""
    saved = with_defaults(read_json(path / "config.json"))["training"]
    return all(saved[key] == getattr(config.training, key) for key in ("num_steps", "max_minutes"))


def best_step(evals: Sequence[Mapping[str, Any]]) -> int | None:
    """The step of the most accurate evaluated policy, the first of equals; None if none was trained."""
    trained = [e for e in evals if e["step"]]
    return max(trained, key=lambda e: e.get("accuracy", e.get("greedy_accuracy")))["step"] if trained else None


def refuse_other_config(path: Path, config: Config) -> None:
    """Raises a UserError if the workdir was made by a config that differs in more than `FREE` keys.

    One in which no step was taken, as the run could not begin, is free for any config.
    """
    file = path / "config.json"
    if not file.is_file() or _unused(path):
        return
    theirs = flat(with_defaults(read_json(file)))
    ours = flat(to_dict(config))
    _refuse(path, theirs, ours, (*FREE, *(("training.num_steps",) if _may_go_on(theirs, ours) else ())))


def refuse_other_policy(path: Path, saved: Config, config: Config) -> None:
    """Raises a UserError if a config differs from the workdir's own in keys of `POLICY` that are not `FREE`."""
    theirs, ours = (
        {key: value for key, value in flat(to_dict(c)).items() if key.startswith(POLICY)} for c in (saved, config)
    )
    _refuse(path, theirs, ours, FREE)


def _refuse(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any], free: tuple[str, ...]) -> None:
    keys = [k for k in sorted(theirs.keys() | ours.keys()) if not k.startswith(free)]
    different = [k for k in keys if theirs.get(k) != ours.get(k)]
    if different:
        changes = ", ".join(f"{k}: {theirs.get(k)!r} there, {ours.get(k)!r} here" for k in different[:3])
        raise UserError(f"workdir {path} belongs to another config ({changes}); choose another --workdir")


def saved_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """The config that a workdir was made with, and overrides; modules that its config file imports are imported.

    Raises:
      UserError: no run was made there, its config is not valid any more, or its config file cannot be run.
    """
    folder = local_path(path, "workdir")
    if not (folder / "config.json").is_file():
        raise UserError(f"workdir {folder} holds no checkpoint: no run was made there")
    if (folder / ORIGIN).is_file():
        import_origin(read_json(folder / ORIGIN))
    return freeze(read_json(folder / "config.json"), overrides)


def _may_go_on(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """True if more steps change nothing in those that were taken: the schedule does not depend on their number."""
    steps = "training.num_steps"
    return ours["optimizer.lr_scheduler_type"] == "constant" and theirs.get(steps, 0) <= ours[steps]


def _unused(path: Path) -> bool:
    """True for a folder that a run has made without taking a step, and not for another tool's with a config.json."""
    return is_workdir(path) and not read_jsonl(path / "metrics.jsonl") and not any(path.glob("checkpoints/*"))
