"""The training loop: steps, with evaluations, checkpoints and logs in between."""

import contextlib
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from pods_jax.analysis.figures import learning_curve
from pods_jax.config.schema import Config
from pods_jax.errors import UserError
from pods_jax.io import write_atomic, writing
from pods_jax.parallel.hosts import exchange, from_main, is_main
from pods_jax.rewards import RewardPool
from pods_jax.training.board import Board
from pods_jax.training.checkpoint import Checkpoints
from pods_jax.training.evaluation import evaluate
from pods_jax.training.notices import Notices, standing
from pods_jax.training.prompts import load_data
from pods_jax.training.reporting import Reporter
from pods_jax.training.run import Run, make_run
from pods_jax.training.step import Diverged, train_step
from pods_jax.training.workdir import Workdir, best_step

LOGS = ("metrics.jsonl", "eval.jsonl", "samples.jsonl")
TOTALS = ("rollouts/", "tokens/", "rounds", "wall_time_s")


def train(config: Config, workdir: str | Path, reporter: Reporter) -> dict[str, Any]:
    """Trains to training.num_steps, max_minutes or the allocator's end, on from the workdir's last whole checkpoint.

    SIGTERM or Ctrl-C end it after the step at hand, with a checkpoint. Writes metrics.jsonl, eval.jsonl, samples.jsonl,
    checkpoints/, tensorboard/, learning_curve.png and, when all is done, summary.json. Returns the summary too (see
    `summarise`), with the signal's name as `stopped_by` where one came.

    Raises:
      UserError: bad data, model path, mesh or workdir; nothing is written then. Or the disk is full: what was written
        before is whole, and the same command goes on once there is room. Or training.max_skipped_updates updates in a
        row were skipped, as their loss or gradient was not finite.
    """
    data = load_data(config)
    reporter.data(config, data)
    workers = RewardPool(num_workers=config.reward.num_workers)
    with StopRequest() as stop, workers as pool, contextlib.closing(Workdir(workdir, config)) as folder:
        run = make_run(config, data, pool, reporter.warm_start)
        step, stopped_by = _train(run, folder, stop, reporter)
        summary = summarise(folder)
        if stopped_by:
            reporter.message(f"stopped  by {stopped_by} after step {step}, which is saved; the same command goes on")
            return summary | {"stopped_by": stopped_by}
        if is_main():
            with writing(folder.path):
                learning_curve(folder.path, folder.path / "learning_curve.png")
                write_atomic(folder.path / "summary.json", json.dumps(summary, indent=2) + "\n")  # last: all is done
    reporter.summary(summary, folder)
    return summary


def _train(run: Run, folder: Workdir, stop: "StopRequest", reporter: Reporter) -> tuple[int, str | None]:
    """Resumes, steps, evaluates and saves; returns the last step, and the signal that stopped the run before its end.

    However it ends, checkpoints and board are closed.
    """
    # ------------------------------------------------------------ resume
    config = run.config
    with contextlib.ExitStack() as owned:
        keep = config.training.keep_checkpoints
        checkpoints = owned.enter_context(contextlib.closing(Checkpoints(folder.path, keep)))
        start = _resume(run, folder, checkpoints, reporter)
        reporter.policy(run, start)
        board = owned.enter_context(contextlib.closing(Board(folder.path / "tensorboard", start + 1, reporter.message)))
        if not folder.read("eval.jsonl"):
            _evaluate(run, folder, board, 0, reporter)

        # -------------------------------------------------------- steps
        for line in standing(config):
            reporter.message(f"notice   {line}")
        notices = Notices(config)
        last_save = run.totals["wall_time_s"]
        step = start
        over = run.ended or _out_of_time(run)
        steps = range(start + 1, 1 + (start if over else config.training.num_steps))
        for step in _until(stop, reporter.steps(steps, start)):
            before_s = run.totals["wall_time_s"]
            metrics = _timed_step(run, folder, step)
            if run.ended:
                step -= 1  # this one made no update
                folder.truncate("eval.jsonl", step - 1)  # to be written again, with what it generated
                break
            _log(folder, board, "metrics.jsonl", step, metrics)
            reporter.step(metrics)
            for line in notices.of(metrics):
                reporter.message(f"notice   step {step}: {line}")
            improved = False
            if _eval_due(config, step, before_s, run.totals["wall_time_s"]):
                _evaluate(run, folder, board, step, reporter)
                improved = _best_step(run, folder) == step
            if improved or _save_due(config, step, run.totals["wall_time_s"] - last_save):
                _save(run, folder, checkpoints, step)
                last_save = run.totals["wall_time_s"]
            if _out_of_time(run):
                reporter.message(f"stopping at step {step}: training.max_minutes is used up")
                break

        # -------------------------------------------------------- wrap-up
        if run.ended:
            reporter.message(f"stopping at step {step}: {run.ended}")
        stopped_by = stop.signal()
        if not stopped_by and not any(r["step"] == step for r in folder.read("eval.jsonl")):
            _evaluate(run, folder, board, step, reporter)
        if checkpoints.latest_step() != step:
            _save(run, folder, checkpoints, step)
        return step, stopped_by


def _resume(run: Run, folder: Workdir, checkpoints: Checkpoints, reporter: Reporter) -> int:
    """Restores the newest whole checkpoint and drops what came after it; returns its step, 0 for a fresh start."""
    restored = checkpoints.restore(run.state, reporter.message)
    if restored is not None:
        checkpoints.set_aside_after(restored.step)
        run.load(restored.state, restored.host)
    for name in LOGS:
        folder.truncate(name, restored.step if restored else -1)
    return restored.step if restored else 0


def _until(stop: "StopRequest", steps: Iterable[int]) -> Iterator[int]:
    """The steps up to the request."""
    return itertools.takewhile(lambda _: stop.signal() is None, steps)


def _save(run: Run, folder: Workdir, checkpoints: Checkpoints, step: int) -> None:
    checkpoints.save(step, run.state, run.host_state(), _best_step(run, folder))


def _best_step(run: Run, folder: Workdir) -> int | None:
    """The checkpoint to keep whatever its age."""
    return best_step(folder.read("eval.jsonl")) if run.config.training.keep_best else None


def _timed_step(run: Run, folder: Workdir, step: int) -> dict[str, float]:
    """A training step with its seconds by phase; `wall_time_s` leaves compilation and evaluation out."""
    run.clock.take()
    begin = time.perf_counter()
    try:
        metrics, groups = train_step(run, step)
    except Diverged as diverged:
        raise _stopped(diverged, run, folder, step) from diverged
    if groups and (step == 1 or _due(step, run.config.training.log_samples_every_steps)):
        folder.append("samples.jsonl", _sample_record(step, groups[0]))
    seconds = run.clock.take()
    step_s = from_main(time.perf_counter() - begin - seconds.get("compile", 0.0))  # it decides on saves and the end
    run.totals["wall_time_s"] += step_s
    return metrics | {f"time/{k}_s": v for k, v in seconds.items()} | {"time/step_s": step_s} | run.totals


def _stopped(diverged: Diverged, run: Run, folder: Workdir, step: int) -> UserError:
    """The error of a run that has diverged; its last batch is saved."""
    file = folder.save_arrays(f"skipped_batch_step_{step}.npz", diverged.batch._asdict())
    return UserError(
        f"step {step}: the loss or its gradient was not finite in the last {run.skipped_in_a_row} updates, which were "
        f"skipped; the last one's batch is in {file}"
    )


def _sample_record(step: int, group: Any) -> dict[str, Any]:
    """A prompt with its first four completions, to be read by a person."""
    return {
        "step": step,
        "prompt": group.request.prompt.text,
        "gold": group.request.prompt.gold,
        "completions": list(group.texts[:4]),
        "rewards": group.rewards[:4].tolist(),
    }


def _evaluate(run: Run, folder: Workdir, board: Board, step: int, reporter: Reporter) -> None:
    run.clock.take()
    with reporter.evaluating(step), run.clock.phase("eval"):
        scores = evaluate(run)
    seconds = run.clock.take()
    metrics = scores | {f"time/{k}_s": v for k, v in seconds.items()} | run.totals
    _log(folder, board, "eval.jsonl", step, metrics)


def _log(folder: Workdir, board: Board, name: str, step: int, metrics: dict[str, float]) -> None:
    folder.append(name, {"step": step} | metrics)
    prefix = "eval/" if name == "eval.jsonl" else ""
    board.add({prefix + key: value for key, value in metrics.items()}, step)


def _due(step: int, every: int) -> bool:
    return bool(every) and step % every == 0


def _eval_due(config: Config, step: int, before_s: float, now_s: float) -> bool:
    """True on a step of the cadence in steps, and where training time passed a multiple of the cadence in minutes."""
    period_s = 60 * config.training.eval_every_minutes
    passed = bool(period_s) and now_s // period_s > before_s // period_s
    return passed or _due(step, config.training.eval_every_steps)


def _save_due(config: Config, step: int, since_s: float) -> bool:
    minutes = config.training.checkpoint_every_minutes
    return _due(step, config.training.checkpoint_every_steps) or (bool(minutes) and since_s >= 60 * minutes)


def _out_of_time(run: Run) -> bool:
    limit = run.config.training.max_minutes
    return limit is not None and run.totals["wall_time_s"] >= 60 * limit


def summarise(folder: Workdir) -> dict[str, Any]:
    """The run in one flat record: evaluation before and after, steps, seconds by phase, rollouts and tokens."""
    metrics = folder.read("metrics.jsonl")
    evals = folder.read("eval.jsonl")
    totals = {k: v for k, v in evals[-1].items() if k.startswith(TOTALS)}
    before, after = (_scores(e) for e in (evals[0], evals[-1]))
    phases = {k for m in metrics for k in m if k.startswith("time/")}
    seconds = {k: sum(m.get(k, 0.0) for m in metrics) for k in sorted(phases)}
    seconds["time/eval_s"] = sum(e["time/eval_s"] for e in evals)
    return (
        {"workdir": str(folder.path), "steps": evals[-1]["step"], "before": before, "after": after} | totals | seconds
    )


def _scores(record: dict[str, Any]) -> dict[str, float]:
    return {k: v for k, v in record.items() if not k.startswith(("step", "time/", *TOTALS))}


# ---------------------------------------------------------------- signals


_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequest:
    """Inside `with`, SIGTERM, SIGHUP (a closed terminal) and the first SIGINT are noted; a second SIGINT interrupts.

    In a thread that is not the process's main one, where signals cannot be caught, nothing changes.
    """

    def __init__(self):
        self._signal: str | None = None
        self._before = {}

    def signal(self) -> str | None:
        """The name of the signal that came to any of the processes that work together, None before; all must ask."""
        return next(filter(None, exchange([self._signal])), None)

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            heard = (s for s in _SIGNALS if signal.getsignal(s) != signal.SIG_IGN)  # nohup ignores SIGHUP
            self._before = {s: signal.signal(s, self._note) for s in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signal = signal.Signals(number).name
        if signal.SIGINT in self._before:
            signal.signal(signal.SIGINT, self._before[signal.SIGINT])
        with contextlib.suppress(OSError):  # where `tee` reads stderr, Ctrl-C has ended it already
            os.write(2, f"\n{self._signal}: finishing the step, then saving\n".encode())
