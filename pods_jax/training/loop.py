"""The training loop: steps, with evaluations, checkpoints and logs in between."""

import contextlib
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pods_jax.analysis.figures import learning_curve
from pods_jax.analysis.runs import read_run, sample_text
from pods_jax.config.schema import Config
from pods_jax.errors import UserError
from pods_jax.io import write_atomic, writing
from pods_jax.learner.batch import Kept
from pods_jax.parallel.hosts import from_main, is_main
from pods_jax.rewards import RewardPool
from pods_jax.training.board import Boards
from pods_jax.training.checkpoint import Checkpoints
from pods_jax.training.evaluation import evaluate
from pods_jax.training.memory import naming_keys_for_memory
from pods_jax.training.noise_measurement import Measurement, measure
from pods_jax.training.notices import Notices, standing
from pods_jax.training.preflight import check
from pods_jax.training.prompts import RunData, load_data
from pods_jax.training.reporting import Reporter
from pods_jax.training.run import Run, make_run
from pods_jax.training.samples import sample_record
from pods_jax.training.step import Diverged, train_step
from pods_jax.training.stopping import Stopped, StopRequest
from pods_jax.training.wandb_board import refuse_missing_package
from pods_jax.training.workdir import SUMMARY, Workdir, best_step

NOISE_FILE = "noise_scale.jsonl"
LOGS = ("metrics.jsonl", "eval.jsonl", "samples.jsonl", NOISE_FILE)
COUNTS = ("step", "rounds", "wall_time_s")
TOTALS = ("rollouts/", "tokens/")
"""Names of what has been spent, and how they begin; `time/` is apart."""


def train(
    config: Config, workdir: str | Path, reporter: Reporter, exit_code: int | None = None,
    origin: Mapping[str, str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Trains to training.num_steps, max_minutes or the allocator's end, on from the workdir's last whole checkpoint.

    SIGTERM or Ctrl-C end it after the step at hand, with a checkpoint; before its first step, and at a second Ctrl-C,
    they end it at once. Writes metrics.jsonl, eval.jsonl, samples.jsonl, samples.txt, checkpoints/, tensorboard/,
    learning_curve.png and, when all is done, summary.json. Returns the summary too (see `summarise`), with the signal's
    name as `stopped_by` where one came; only this and the workdir where no step was taken.

    exit_code: of the process, which a signal ends if the run, being inside a compiler, cannot stop at once; None: the
      run stops when it can.
    origin: see `Workdir`.

    Raises:
      UserError: bad data, model path, mesh or workdir; nothing is written then. Or the disk is full: what was written
        before is whole, and the same command goes on once there is room. Or memory is too small. Or
        training.max_skipped_updates updates in a row were skipped, as their loss or gradient was not finite.
    """
    check(config, workdir)
    refuse_missing_package(config)
    data = load_data(config)
    reporter.data(config, data)
    workers = RewardPool(num_workers=config.reward.num_workers)
    owned_folder = contextlib.closing(Workdir(workdir, config, origin))
    with StopRequest(exit_code) as stop, workers as pool, owned_folder as folder:
        try:
            with naming_keys_for_memory(config):
                step, stopped_by = _train(config, data, pool, folder, stop, reporter)
        except Stopped as signal:
            reporter.message(f"stopped  by {signal}, with nothing to save; the same command starts again from there")
            return {"workdir": str(folder.path), "stopped_by": str(signal)}
        summary = summarise(folder)
        if stopped_by:
            reporter.message(f"stopped  by {stopped_by} after step {step}, which is saved; the same command goes on")
            return summary | {"stopped_by": stopped_by}
        if is_main():
            with writing(folder.path):
                learning_curve(folder.path, folder.path / "learning_curve.png")
                write_atomic(folder.path / SUMMARY, json.dumps(summary, indent=2) + "\n")  # last: all is done
    reporter.summary(summary, folder)
    return summary


def _train(
    config: Config, data: RunData, pool: RewardPool, folder: Workdir, stop: StopRequest, reporter: Reporter
) -> tuple[int, str | None]:
    """Resumes, steps, evaluates and saves; returns the last step, and the signal that stopped the run before its end.

    However it ends, checkpoints and boards are closed.

    Raises:
      Stopped: a signal came before the first step.
    """
    # ------------------------------------------------------------ start, or resume
    with contextlib.ExitStack() as owned:
        with stop.at_once():
            run = make_run(config, data, pool, reporter.warm_start)
            owned.callback(run.wait_for_devices)  # no process ends in good order while they compute
            keep = config.training.keep_checkpoints
            checkpoints = owned.enter_context(contextlib.closing(Checkpoints(folder.path, keep)))
            start = _resume(run, folder, checkpoints, reporter)
            reporter.policy(run, start)
            boards = Boards(config, folder.path, start + 1, reporter.message)
            owned.enter_context(contextlib.closing(boards))
            if start == 0 and not folder.read("eval.jsonl"):
                _evaluate(run, folder, boards, 0, reporter)

        # -------------------------------------------------------- steps
        for line in standing(config):
            reporter.message(f"notice   {line}")
        notices = Notices(config)
        last_save = run.totals["wall_time_s"]
        step = start
        over = run.ended or _out_of_time(run)
        steps = range(start + 1, 1 + (start if over else config.training.num_steps))
        if steps:
            folder.remove(SUMMARY)  # of its end after fewer
        for step in _until(stop, reporter.steps(steps, start)):
            before_s = run.totals["wall_time_s"]
            measured = _measured(run, step, reporter) if _noise_due(config, step) else None
            metrics = _timed_step(run, folder, boards, step)
            if run.ended:
                step -= 1  # this one made no update
                break
            if measured is not None:
                folder.append(NOISE_FILE, {"step": step} | measured.record)
                metrics |= measured.metrics
            _log(folder, boards, "metrics.jsonl", step, metrics)
            reporter.step(metrics)
            for line in notices.of(metrics):
                reporter.message(f"notice   step {step}: {line}")
            improved = False
            if _eval_due(config, step, before_s, run.totals["wall_time_s"]):
                _evaluate(run, folder, boards, step, reporter)
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
        if not stopped_by:
            if run.ended and not (folder.path / SUMMARY).is_file():
                folder.truncate("eval.jsonl", step - 1)  # to be written again, with what the last step generated
            if not any(r["step"] == step for r in folder.read("eval.jsonl")):
                _evaluate(run, folder, boards, step, reporter)
        if checkpoints.latest_step() != step:
            _save(run, folder, checkpoints, step)
        return step, stopped_by


def _resume(run: Run, folder: Workdir, checkpoints: Checkpoints, reporter: Reporter) -> int:
    """Restores the newest whole checkpoint and drops what came after it; returns its step, 0 for a fresh start."""
    restored = checkpoints.restore(run.state, reporter.message, reference=run.moving_reference())
    if restored is not None:
        checkpoints.set_aside_after(restored.step)
        run.load(restored.step, restored.state, restored.host, restored.reference)
    for name in LOGS:
        folder.truncate(name, restored.step if restored else -1)
    if is_main():
        folder.write("samples.txt", "".join(map(sample_text, read_run(folder.path).samples)))
    if restored is not None:
        _tell_lost_lines(folder, run.config, restored.step, reporter)
    return restored.step if restored else 0


def _tell_lost_lines(folder: Workdir, config: Config, last_step: int, reporter: Reporter) -> None:
    """Says which lines up to a checkpoint are not in the logs any more, as curves and summary lack them."""
    every = config.training.eval_every_steps
    written = {"metrics.jsonl": range(1, last_step + 1), "eval.jsonl": range(0, last_step + 1, every or last_step + 1)}
    for name, steps in written.items():
        if lost := sorted(set(steps) - {record["step"] for record in folder.read(name)}):
            reporter.message(f"warning  {name} lacks {len(lost)} of {len(steps)} lines, the first of step {lost[0]}")


def _until(stop: StopRequest, steps: Iterable[int]) -> Iterator[int]:
    """The steps up to the request."""
    return itertools.takewhile(lambda _: stop.signal() is None, steps)


def _save(run: Run, folder: Workdir, checkpoints: Checkpoints, step: int) -> None:
    _wait_for_rollouts(run)
    checkpoints.save(step, run.state, run.host_state(), _best_step(run, folder), run.moving_reference())


def _best_step(run: Run, folder: Workdir) -> int | None:
    """The checkpoint to keep whatever its age."""
    return best_step(folder.read("eval.jsonl")) if run.config.training.keep_best else None


def _timed_step(run: Run, folder: Workdir, boards: Boards, step: int) -> dict[str, float]:
    """A training step with its seconds by phase; `wall_time_s` leaves compilation and evaluation out."""
    run.clock.take()
    begin = time.perf_counter()
    try:
        metrics, kept = train_step(run, step)
    except Diverged as diverged:
        raise _stopped(diverged, run, folder, step) from diverged
    seconds = run.clock.take()
    step_s = from_main(time.perf_counter() - begin - seconds.get("compile", 0.0))  # it decides on saves and the end
    if kept and (step == 1 or _due(step, run.config.training.log_samples_every_steps)):
        _log_samples(run, folder, boards, step, kept)
    run.totals["wall_time_s"] += step_s
    return metrics | {f"time/{k}_s": v for k, v in seconds.items()} | {"time/step_s": step_s} | run.totals


def _stopped(diverged: Diverged, run: Run, folder: Workdir, step: int) -> UserError:
    """The error of a run that has diverged; its last batch is saved."""
    file = folder.save_arrays(f"skipped_batch_step_{step}.npz", diverged.batch._asdict())
    return UserError(
        f"step {step}: the loss or its gradient was not finite in the last {run.skipped_in_a_row} updates, which were "
        f"skipped; the last one's batch is in {file}"
    )


def _log_samples(run: Run, folder: Workdir, boards: Boards, step: int, kept: Sequence[Kept]) -> None:
    """A record in samples.jsonl, and its text in samples.txt and on the boards."""
    record = sample_record(step, kept, run.data.dataset.reads)
    text = sample_text(record)
    folder.append("samples.jsonl", record)
    folder.append_text("samples.txt", text)
    boards.add_text("samples", text, step)


def _wait_for_rollouts(run: Run) -> None:
    """Training time goes on until no rollouts are generated ahead: the next step would wait for them, too."""
    if not run.config.rollout.ahead:
        return
    begin = time.perf_counter()
    run.ahead.wait()
    run.totals["wall_time_s"] += from_main(time.perf_counter() - begin)


def _evaluate(run: Run, folder: Workdir, boards: Boards, step: int, reporter: Reporter) -> None:
    _wait_for_rollouts(run)
    run.clock.take()
    reporter.evaluating(step)
    with run.clock.phase("eval"):
        scores = evaluate(run)
    reporter.evaluated(step, scores)
    seconds = run.clock.take()
    metrics = scores | {f"time/{k}_s": v for k, v in seconds.items()} | run.totals
    _log(folder, boards, "eval.jsonl", step, metrics)


def _measured(run: Run, step: int, reporter: Reporter) -> Measurement:
    """The noise scale of the policy before a step; its seconds are no training time."""
    _wait_for_rollouts(run)
    run.clock.take()
    with run.clock.phase("noise_scale"):
        found = measure(run, step)
    seconds = run.clock.take()
    reporter.message(f"noise    before step {step}: {found.scale}")
    return found._replace(metrics=found.metrics | {"time/noise_scale_s": seconds["noise_scale"]})


def _noise_due(config: Config, step: int) -> bool:
    every = config.diagnostics.noise_scale_every_steps
    return bool(every) and (step - 1) % every == 0


def _log(folder: Workdir, boards: Boards, name: str, step: int, metrics: dict[str, float]) -> None:
    folder.append(name, {"step": step} | metrics)
    prefix = "eval/" if name == "eval.jsonl" else ""
    boards.add({prefix + key: value for key, value in metrics.items()}, step)


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
    initial = evals[0] if evals[0]["step"] == 0 else {}  # lost
    totals = {k: v for k, v in evals[-1].items() if k in COUNTS[1:] or k.startswith(TOTALS)}
    before, after = (_scores(e) for e in (initial, evals[-1]))
    phases = {k for m in metrics for k in m if k.startswith("time/")}
    seconds = {k: sum(m.get(k, 0.0) for m in metrics) for k in sorted(phases)}
    seconds["time/eval_s"] = sum(e["time/eval_s"] for e in evals)
    return (
        {"workdir": str(folder.path), "steps": evals[-1]["step"], "before": before, "after": after} | totals | seconds
    )


def _scores(record: dict[str, Any]) -> dict[str, float]:
    return {k: v for k, v in record.items() if k not in COUNTS and not k.startswith(("time/", *TOTALS))}
