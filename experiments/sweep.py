"""Many runs: configs x values x seeds, each in a workdir of its own.

    python experiments/sweep.py --config configs/demo.py:pods --config configs/demo.py:grpo_ga --seeds 0-9 \\
        --set optimizer.learning_rate=1e-3,3e-4 --workdir runs/sweep --workers 2 --cores-per-run 1

--config.KEY=VALUE changes a value in all runs, and is no part of their names.

The same command goes on where it was stopped: finished runs are skipped, others resume. --dry-run lists all runs with
their numbers. On a cluster, --index runs one of them, e.g. in a Slurm array of 40:

    sbatch --array=0-39 --wrap 'python experiments/sweep.py ... --index $SLURM_ARRAY_TASK_ID'

A failed run stops no other; the exit code is 1 if there was one. experiments/figures.py --runs draws the results.
"""

import argparse
import sys
from pathlib import Path

from pods_jax.cli import main_with_errors, overrides, print_json
from pods_jax.errors import UserError


def main() -> None:
    args, rest = _parser().parse_known_args()
    constants = overrides(rest)
    from pods_jax.training import sweep

    settings = dict(sweep.parse_setting(s) for s in args.set)
    runs = sweep.expand(args.config, settings, sweep.parse_seeds(args.seeds), args.workdir, constants)
    if args.index is not None:
        if not 0 <= args.index < len(runs):
            raise UserError(f"--index {args.index}: there are runs 0 to {len(runs) - 1}")
        runs = [runs[args.index]]
    sweep.check(runs)
    workers = sweep.Sweep(Path(__file__).with_name("train.py"), args.workers, args.cores_per_run)
    if args.dry_run:
        for index, run in enumerate(runs):
            print(f"{index:4} {run.state():9} {run.name}")
        return
    failed = sweep.work_off(workers.run, runs)
    results = sweep.table(runs)
    _print_table(results)
    if args.json:
        print_json({"runs": len(runs), "failed": failed, "groups": results})
    sys.exit(1 if failed else 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--config", action="append", required=True, metavar="FILE[:ARG]", help="an experiment; may be repeated")
    add("--seeds", default="0", help="such as 0-9 or 0,3,5-7 (default: 0)")
    add("--set", action="append", default=[], metavar="KEY=V[,V...]", help="values of a config key; may be repeated")
    add("--workdir", type=Path, required=True, help="the folder of all workdirs")
    add("--workers", type=int, default=1, help="runs at a time (default: 1)")
    add("--cores-per-run", type=int, help="pin each run to so many cores of its own (default: all cores for each)")
    add("--index", type=int, metavar="N", help="run only the N-th, from 0, as --dry-run numbers them")
    add("--dry-run", action="store_true", help="list the runs and their states")
    add("--json", action="store_true", help="print a one-line JSON summary at the end")
    return parser


def _print_table(results: dict) -> None:
    width = max(map(len, results))
    print(f"{'config':{width}}  runs  accuracy            training time (s)   s/step")
    for name, r in results.items():
        cells = [
            f"{r.get(key, float('nan')):.4g} +- {r.get(key + '_half_width', float('nan')):.2g}"
            for key in ("accuracy", "wall_time_s", "seconds_per_step")
        ]
        print(f"{name:{width}}  {r['finished']:4.0f}  {cells[0]:18}  {cells[1]:18}  {cells[2]}")


if __name__ == "__main__":
    main_with_errors(main)
