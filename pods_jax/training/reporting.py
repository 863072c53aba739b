"""Messages of a run for a person at a terminal."""

import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Any, Protocol

import jax
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from pods_jax.cache import cache_folder
from pods_jax.config.schema import Config
from pods_jax.training.prompts import RunData
from pods_jax.training.workdir import Workdir

if TYPE_CHECKING:
    from pods_jax.training.run import Run


_SCORES = ("accuracy", "greedy_", "format", "both", "mean_length", "truncated")


class _Console(Console):
    """A console whose reader may go away, as `tee` does at Ctrl-C: the run goes on without it."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        _point_at_nothing(self.file)


class _Forgiving:
    """A stream whose reader may go away; all else is the stream's."""

    def __init__(self, stream: Any):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            _point_at_nothing(self._stream)

    def flush(self) -> None:
        """`write` has done it."""


def _point_at_nothing(stream: Any) -> None:
    """Lets a stream's file descriptor discard what is written, at the interpreter's end too."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


# ---------------------------------------------------------------- progress


class Pace:
    """Speed of a run, and the time that it has left, judged by the steps after a process's first, which compiles."""

    def __init__(self, num_steps: int):
        self._left = num_steps
        self._ends_s: list[float] = []
        self._spent: deque[tuple[float, float]] = deque(maxlen=10)

    def step(self, metrics: Mapping[str, float]) -> None:
        """Takes a finished step's metrics."""
        self._left -= 1
        self._ends_s.append(time.monotonic())
        self._spent.append((metrics["tokens/generated"], metrics["wall_time_s"]))

    def seconds_left(self) -> float | None:
        """Seconds until the end, with evaluations and saves at their rate so far; None before the second step."""
        if len(self._ends_s) < 2:
            return None
        return self._left * (self._ends_s[-1] - self._ends_s[0]) / (len(self._ends_s) - 1)

    def tokens_per_s(self) -> float | None:
        """Tokens generated a second of training time, over the last steps; None before the second step."""
        tokens, seconds = (last - first for first, last in zip(self._spent[0], self._spent[-1], strict=True))
        return tokens / seconds if seconds else None

    def __str__(self) -> str:
        left = self.seconds_left()
        speed = self.tokens_per_s()
        known = [
            f"{tqdm.format_interval(left)} left" if left is not None else "",
            f"{speed:,.0f} tokens/s" if speed else "",
        ]
        return ", ".join(filter(None, known))


class Progress(Protocol):
    """Shows, on stderr, how far a run is."""

    def advance(self, text: str) -> None:
        """A step is done; `text` says how it went."""

    def close(self) -> None:
        """The run's last step is done."""


class Bar:
    """A bar on a terminal."""

    def __init__(self, done: int, total: int):
        form = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
        self._bar = tqdm(desc="train", initial=done, total=total, bar_format=form, file=_Forgiving(sys.stderr))
        self._bar.set_postfix_str("compiling")

    def advance(self, text: str) -> None:
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update()

    def close(self) -> None:
        self._bar.close()


class Lines:
    """Plain lines for a log file: the first step's, then one now and then, and the last step's."""

    INTERVAL_S = 10.0

    def __init__(self, done: int, total: int):
        self._done = done
        self._total = total
        self._next_s = 0.0
        self._file = _Forgiving(sys.stderr)

    def advance(self, text: str) -> None:
        self._done += 1
        if time.monotonic() >= self._next_s or self._done == self._total:
            self._next_s = time.monotonic() + self.INTERVAL_S
            self._file.write(f"train    step {self._done} of {self._total}: {text}\n")

    def close(self) -> None:
        """Lines are whole already."""


class Nothing:
    """No progress, for quiet reporters."""

    def advance(self, text: str) -> None:
        """Says nothing."""

    def close(self) -> None:
        """There is nothing to close."""


# ---------------------------------------------------------------- messages


class Reporter:
    """Messages to stdout, progress to stderr: a bar on a terminal, else plain lines. quiet: neither."""

    def __init__(self, quiet: bool = False):
        self._quiet = quiet
        self._console = _Console(highlight=False, markup=False, emoji=False, soft_wrap=True, quiet=quiet)
        self._progress: Progress = Nothing()
        self._pace = Pace(0)
        self._rewards: list[float] = []

    def message(self, text: str) -> None:
        with tqdm.external_write_mode():
            self._console.print(text)

    def data(self, config: Config, data: RunData) -> None:
        dropped = sum(x.dropped for x in (data.train, data.test, *data.others.values()))
        more = "".join(f", {len(x.examples):,} of {prefix}" for prefix, x in data.others.items())
        skipped = f"; skipped {data.dataset.skipped} unusable rows" if data.dataset.skipped else ""
        note = f"; dropped {dropped} prompts longer than {config.rollout.max_prompt_length} tokens" if dropped else ""
        self.message(
            f"data     {config.data.name}: {len(data.train.examples):,} training prompts, "
            f"{len(data.test.examples):,} test problems{more}{note}{skipped}"
        )
        r = config.rollout
        s = config.selection
        self.message(
            f"method   {config.allocation.name} allocation, {r.num_prompts} prompts x n = {r.num_generations} "
            f"rollouts a step, {s.rule} keeps m = {s.num_kept}, {config.objective.loss_type} loss"
        )

    def warm_start(self, step: int, loss: float | None) -> None:
        """After some supervised steps. loss: None if the cache had their result."""
        if loss is None:
            self.message(f"warm-up  {step:,} supervised steps, made before: from {cache_folder('warm_starts')}")
        elif step % 100 == 0:
            self.message(f"warm-up  {step:,} supervised steps, loss {loss:.3f}")

    def policy(self, run: "Run", start: int) -> None:
        trained, frozen = (sum(x.size for x in jax.tree.leaves(tree)) for tree in (run.state.params, run.base))
        lora = run.config.lora
        scale = f"(alpha / rank = {lora.alpha:g} / {lora.rank} = scale {lora.scale:g})"
        beneath = f" in adapters {scale} of {frozen:,} frozen ones" if frozen else ""
        device = f"{run.mesh.devices.size} {run.mesh.devices.flat[0].device_kind} device(s)"
        self.message(f"policy   {trained:,} parameters{beneath} on {device}")
        if start:
            self.message(f"resume   from the checkpoint at step {start}")

    def steps(self, steps: range, done: int) -> Iterator[int]:
        """The steps, with progress shown while they are made. done: number of steps before."""
        if steps:
            self.message(
                f"compile  step {steps[0]} compiles its programs: this may take a minute, or more for a large model"
            )
        self._pace = Pace(len(steps))
        if not self._quiet and steps:
            self._progress = (Bar if sys.stderr.isatty() else Lines)(done, done + len(steps))
        try:
            yield from steps
        finally:
            self._progress.close()

    def step(self, metrics: dict[str, float]) -> None:
        """After a training step."""
        self._rewards.append(metrics["reward"])
        self._pace.step(metrics)
        variance = metrics["selection/kept_variance"]
        reward = f"reward {metrics['reward']:.3f}, kept variance {variance:.3f}"
        self._progress.advance(", ".join(filter(None, [str(self._pace), reward])))

    def evaluating(self, step: int) -> None:
        """Before an evaluation."""
        if step == 0:
            self.message("eval     before training; its programs are compiled first ...")

    def evaluated(self, step: int, scores: Mapping[str, float]) -> None:
        """After an evaluation; the reward is the mean over the steps since the one before."""
        named = {name: name.replace("greedy_accuracy", "greedy") for name in scores if name.endswith("accuracy")}
        parts = [f"{said} {scores[name]:.1%}" for name, said in named.items()]
        if self._rewards:
            parts.append(f"reward {fmean(self._rewards):.3f}")
        self._rewards.clear()
        self.message(f"eval     step {step}: {', '.join(parts)}")

    def scores(self, columns: dict[str, dict[str, float]], title: str) -> None:
        """A table of evaluation scores, one column each."""
        table = Table("", title=title)
        for name in columns:
            table.add_column(name, justify="right")
        for key in next(iter(columns.values())):
            if any(part.startswith(_SCORES) for part in key.split("/")):
                form = "{:.1f}" if key.endswith("mean_length") else "{:.1%}"
                table.add_row(key.replace("_", " "), *(form.format(scores[key]) for scores in columns.values()))
        self._console.print(table)

    def summary(self, summary: dict[str, Any], folder: Workdir) -> None:
        columns = {when: summary[when] for when in ("before", "after") if summary[when]}
        self.scores(columns, f"test problems, before and after {summary['steps']} steps")
        phases = ("sample", "verify", "select", "update", "eval", "compile")
        times = ", ".join(f"{p} {summary.get(f'time/{p}_s', 0.0):.1f} s" for p in phases)
        self.message(f"time     {summary['wall_time_s']:.1f} s of training ({times})")
        self.message(
            f"rollouts {summary['rollouts/generated']:,.0f} generated, {summary['rollouts/trained']:,.0f} trained on; "
            f"tokens {summary['tokens/generated']:,.0f} and {summary['tokens/trained']:,.0f}"
        )
        self.message(
            f"outputs  {folder.path}: learning_curve.png, metrics.jsonl, eval.jsonl, samples.txt, checkpoints/"
        )
