"""How far the curves of a group go of whose runs some are still going on, or were stopped."""

from collections.abc import Sequence

from pods_jax.analysis.runs import RunRecord


def comparable(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs that go as far as the curves of the group (see `last_step`)."""
    end = last_step(runs)
    return [run for run in runs if _reached(run) >= end]


def last_step(runs: Sequence[RunRecord]) -> int:
    """Where the curves of a group end.

    An unfinished run does not cut the finished ones. Of these, or of all if none is finished, the curves go as far as
    makes runs x steps largest: seeds that are a little behind cut them, and one that has hardly begun does not.
    """
    steps = sorted(_reached(run) for run in [r for r in runs if r.finished] or runs)
    return max(steps, key=lambda step: step * sum(s >= step for s in steps))


def remarks(label: str, runs: Sequence[RunRecord]) -> list[str]:
    """A line for each run of a group that is unfinished, or evaluated less far than others: what becomes of it."""
    end, furthest = last_step(runs), max(map(_reached, runs))
    lines = []
    for run in runs:
        step, unfinished = _reached(run), "" if run.finished else "unfinished, "
        if step < end:
            lines.append(f"{run.workdir} is left out: {unfinished}evaluated up to step {step}, and {label} up to {end}")
        elif unfinished or step == end < furthest:
            lines.append(
                f"{run.workdir} is {unfinished}evaluated up to step {step}: the curves of {label} end at {end}"
            )
    return lines


def _reached(run: RunRecord) -> int:
    return run.evals[-1]["step"]
