"""Kill a run at random moments, let the same command finish it, and compare it with a run that was never killed:

    python experiments/check_resume.py --config configs/demo.py --workdir runs/check --kills 20 [--config.seed=1 ...]

Each life of the run ends by SIGKILL at a random moment of a random phase: warm start, sampling, verification,
selection, update, evaluation, or the writing of a checkpoint. In the end the lines of metrics.jsonl, eval.jsonl and
samples.jsonl (timing aside), the parameters and the optimizer's state must be those of the other run, to the bit; else
the exit code is 1. Give it steps enough (training.num_steps) and frequent checkpoints, so that all kills find their
moment. A line is printed when a life begins, and every ten seconds with the step that it is at. --json ends with a
one-line summary.
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pods_jax.cli import add_count, experiment_parser, main_with_errors, parse_experiment
from pods_jax.errors import UserError
from pods_jax.io import read_jsonl

LOGS = ("metrics.jsonl", "eval.jsonl", "samples.jsonl")
PHASES = ("warm start", "sample", "verify", "select", "update", "eval", "checkpoint")
UNTIMED_S = {"warm start": 3.0, "checkpoint": 0.3}
"""How long a phase that no log tells of may take."""
TELL_EVERY_S = 10.0


def main() -> None:
    parser = experiment_parser(__doc__)
    add_count(parser, "--kills", default=20)
    parser.add_argument("--kill-seed", type=int, default=0, help="of the random moments")
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=PHASES, metavar="PHASE", help=", ".join(PHASES))
    parser.add_argument("--die", help=argparse.SUPPRESS)  # PHASE:OCCURRENCE:SECONDS, what a life is told
    args, config = parse_experiment(parser)
    if args.die:
        from pods_jax.training import Reporter, train

        die(*args.die.split(":"))
        train(config, args.workdir, Reporter())
        return
    workdir = Path(args.workdir)
    tell("the run that is never killed")
    live(workdir, "whole")
    kills = kill_often(workdir, args.kills, args.phases, random.Random(args.kill_seed))
    tell("comparison of the two runs")
    different = differences(workdir / "whole", workdir / "killed")
    print("\n".join(different) or f"identical after {sum(kills.values())} kills")
    if args.json:
        print(json.dumps({"kills": kills, "identical": not different, "different": different}))
    if different:
        sys.exit(1)


def kill_often(workdir: Path, number: int, phases: list[str], rng: random.Random) -> dict[str, int]:
    """Lives that end in a kill, then one that ends well; how many were killed in each phase."""
    kills = Counter()
    seconds = typical_seconds(workdir / "whole")
    while sum(kills.values()) < number:
        phase = rng.choice(phases)
        occurrence = 1 if phase in ("warm start", "eval") else rng.randint(1, 4)
        kill = f"kill {sum(kills.values()) + 1} of {number}"
        tell(f"{kill} at step {last_step(workdir / 'killed')} or later: {phase}")
        if live(workdir, "killed", f"{phase}:{occurrence}:{rng.uniform(0, seconds[phase]):.4f}"):
            tell(f"the run ended before {kill}")
            break
        kills[phase] += 1
    tell("the last life of the killed run")
    live(workdir, "killed")
    return dict(kills)


def live(workdir: Path, name: str, moment: str | None = None) -> bool:
    """One life of the run `workdir/name`, told to die at a moment; whether it ended well. Compiled code is shared."""
    options = [f"--workdir={workdir / name}", f"--die={moment or 'never:0:0'}"]
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(workdir / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PODS_JAX_CACHE": str(workdir / f"cache-{name}"),
    }
    command = [sys.executable, __file__, *sys.argv[1:], *options]
    with telling_steps(workdir / name):
        done = subprocess.run(command, env=cache | os.environ, capture_output=True, text=True)
    if done.returncode not in (0, -signal.SIGKILL):
        raise UserError(f"the run failed: {(done.stderr.splitlines() or ['no message'])[-1]}")
    return done.returncode == 0


@contextlib.contextmanager
def telling_steps(run: Path) -> Iterator[None]:
    """Tells now and then how far the run is."""
    over = threading.Event()

    def keep_telling():
        while not over.wait(TELL_EVERY_S):
            tell(f"    step {last_step(run)}")

    thread = threading.Thread(target=keep_telling)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def last_step(run: Path) -> int:
    """The last step that a run has logged, 0 before any."""
    return max((record["step"] for record in read_jsonl(run / "metrics.jsonl")), default=0)


def tell(text: str) -> None:
    print(text, flush=True)


def die(phase: str, occurrence: str, seconds: str) -> None:
    """Arranges for this process to be killed some seconds after the phase begins for the n-th time."""
    from pods_jax.training import run as run_module
    from pods_jax.training.checkpoint import Checkpoints
    from pods_jax.training.metrics import PhaseClock

    count = itertools.count(1)

    def begins(name):
        if name == phase and next(count) == int(occurrence):
            threading.Timer(float(seconds), os.kill, (os.getpid(), signal.SIGKILL)).start()

    def after_begin(name, function):
        def wrapped(*args, **kwargs):
            begins(name)
            return function(*args, **kwargs)

        return wrapped

    timed = PhaseClock.phase

    @contextlib.contextmanager
    def phase_of_clock(clock, name):
        begins(name)
        with timed(clock, name):
            yield

    PhaseClock.phase = phase_of_clock
    Checkpoints.save = after_begin("checkpoint", Checkpoints.save)
    run_module.warm_started_params = after_begin("warm start", run_module.warm_started_params)


def typical_seconds(run: Path) -> dict[str, float]:
    """Mean seconds of each phase."""
    records = read_jsonl(run / "metrics.jsonl") + read_jsonl(run / "eval.jsonl")
    times = {p: [r[f"time/{p}_s"] for r in records if f"time/{p}_s" in r] for p in PHASES}
    return {p: sum(t) / len(t) for p, t in times.items() if t} | UNTIMED_S


def differences(whole: Path, killed: Path) -> list[str]:
    """In words, what differs between two finished runs."""
    found = []
    for name in LOGS:
        a, b = untimed(whole / name), untimed(killed / name)
        unequal = [i + 1 for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y]
        if len(a) != len(b) or unequal:
            found.append(f"{name}: {len(a)} and {len(b)} lines, different are {unequal[:5]}")
    a, b = final_arrays(whole), final_arrays(killed)
    return found + [f"checkpoint: {name}" for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)]


def untimed(path: Path) -> list[dict]:
    """A log's records without their times.

    Raises:
      json.JSONDecodeError: a line is torn.
    """
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in record.items() if "time" not in k} for record in records]


def final_arrays(run: Path) -> dict[str, bytes]:
    """The bits of every array of the last checkpoint."""
    import jax
    import numpy as np
    import orbax.checkpoint as ocp

    last = max((run / "checkpoints").iterdir(), key=lambda p: int(p.name) if p.name.isdigit() else -1)
    state = ocp.StandardCheckpointer().restore(last.absolute() / "state")
    return {jax.tree_util.keystr(p): np.asarray(x).tobytes() for p, x in jax.tree_util.tree_leaves_with_path(state)}


if __name__ == "__main__":
    main_with_errors(main)
