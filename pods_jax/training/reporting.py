"""Messages of a run for a person at a terminal."""

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import jax
from rich.console import Console
from rich.table import Table
from tqdm.auto import tqdm

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


class Reporter:
    """Messages to stdout, progress bars to stderr; quiet: neither."""

    def __init__(self, quiet: bool = False):
        self._quiet = quiet
        self._console = _Console(highlight=False, markup=False, emoji=False, soft_wrap=True, quiet=quiet)
        self._bar: tqdm | None = None

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

    def warm_start(self, step: int, loss: float) -> None:
        if step % 100 == 0:
            self.message(f"warm-up  {step} supervised steps, loss {loss:.3f}")

    def policy(self, run: "Run", start: int) -> None:
        trained, frozen = (sum(x.size for x in jax.tree.leaves(tree)) for tree in (run.state.params, run.base))
        lora = run.config.lora
        scale = f"(alpha / rank = {lora.alpha:g} / {lora.rank} = scale {lora.scale:g})"
        beneath = f" in adapters {scale} of {frozen:,} frozen ones" if frozen else ""
        device = f"{run.mesh.devices.size} {run.mesh.devices.flat[0].device_kind} device(s)"
        self.message(f"policy   {trained:,} parameters{beneath} on {device}")
        if start:
            self.message(f"resume   from the checkpoint at step {start}")

    def steps(self, steps: range, done: int) -> Iterable[int]:
        interval_s = 0.2 if sys.stderr.isatty() else 10.0  # a log file gets a line now and then
        self._bar = tqdm(
            steps,
            desc="train",
            initial=done,
            total=done + len(steps),
            unit="step",
            mininterval=interval_s,
            miniters=1,
            disable=self._quiet,
            file=_Forgiving(sys.stderr),
        )
        return self._bar

    def step(self, metrics: dict[str, float]) -> None:
        self._bar.set_postfix_str(
            f"reward {metrics['reward']:.3f}, kept variance {metrics['selection/kept_variance']:.3f}", refresh=False
        )

    @contextlib.contextmanager
    def evaluating(self, step: int) -> Iterator[None]:
        if self._bar is None:
            self.message("eval     before training ...")
        yield

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
        columns = {"before": summary["before"], "after": summary["after"]}
        self.scores(columns, f"test problems, before and after {summary['steps']} steps")
        phases = ("sample", "verify", "select", "update", "eval", "compile")
        times = ", ".join(f"{p} {summary.get(f'time/{p}_s', 0.0):.1f} s" for p in phases)
        self.message(f"time     {summary['wall_time_s']:.1f} s of training ({times})")
        self.message(
            f"rollouts {summary['rollouts/generated']:,.0f} generated, {summary['rollouts/trained']:,.0f} trained on; "
            f"tokens {summary['tokens/generated']:,.0f} and {summary['tokens/trained']:,.0f}"
        )
        self.message(
            f"outputs  {folder.path}: learning_curve.png, metrics.jsonl, eval.jsonl, samples.jsonl, checkpoints/"
        )
