"""The study at CPU scale, in one command: runs, step costs, tables and figures.

    python experiments/study.py                          # days; the same command goes on where it was stopped
    python experiments/study.py --quick                  # a minute or two: that everything works, no results
    python experiments/study.py --part main --no-runs --document docs/results.md   # tables anew, into a document
    python experiments/study.py --from-numbers --out docs/results --document docs/results.md   # reads only JSON files

Parts: `main` (methods), `ablations` (n, m, statistics), `larger` (a policy of ten times the parameters), `allocation`
(who gets rollouts), `small_batch` (the same with a quarter of the prompts in a step), `smollm2` (methods on a language
model; days), `regime` (where PODS and Pilot-Commit pay, beside what the noise scale predicts; hours), `costs` (seconds
per step, of which all times are made: the machine must be quiet; `smollm2` and `regime` measure their own). The
comparisons are data, in `experiments/study/definition.py`, `smollm2.py` and `regime.py`; docs/results.md has the
results.

A finished run leaves a small file in OUT/runs (those of smollm2 and regime: in --records), of which tables and figures
are made; a run whose file is there is not made again, so that a study goes on in another clone. --json ends with one
line that has every number.
"""

import argparse
import sys
from pathlib import Path

from pods_jax.cli import add_count, main_with_errors, print_json
from pods_jax.errors import UserError
from pods_jax.io import make_folder

PARTS = ("main", "ablations", "larger", "allocation", "small_batch", "smollm2", "regime", "costs")
RECORDS = Path(__file__).parents[1] / "docs" / "results"


def main() -> None:
    args = _parser().parse_args()
    workdir = args.workdir or Path("runs/study-quick" if args.quick else "runs/study")
    out = args.out or workdir / "results"
    if not args.from_numbers:
        make_folder(workdir, "workdir")
        make_folder(out, "folder")
    if args.document and not args.document.is_file():
        raise UserError(f"no document {args.document}")
    from study import regime, regime_stages, stages, workers
    from study.definition import FULL, QUICK
    from study.smollm2 import COST_ROUNDS, FULL_EXTENT, QUICK_EXTENT
    from study.smollm2_stages import make_smollm2

    if args.from_numbers:
        stages.write_from_numbers(out, args.document)
        return
    study = QUICK if args.quick else FULL
    extent = QUICK_EXTENT if args.quick else FULL_EXTENT
    regimes = regime.QUICK if args.quick else regime.FULL
    kept = args.records or (workdir / "records" if args.quick else RECORDS)
    records = {part: kept / part for part in (stages.SMOLLM2, stages.REGIME)}
    parts = PARTS if args.part == "all" else (args.part,)
    failed = {}
    if not args.no_runs:
        workers.check(args.workers)
        failed = stages.make_runs(study, [p for p in parts if p in study.parts], workdir, out, args.workers, args.seeds)
        if stages.COSTS in parts:
            stages.measure_costs(study, workdir)
        if stages.SMOLLM2 in parts:
            rounds = 1 if args.quick else COST_ROUNDS
            failed |= make_smollm2(
                extent.cut(args.seeds), workdir / stages.SMOLLM2, records[stages.SMOLLM2], rounds, args.workers
            )
        if stages.REGIME in parts:
            failed |= regime_stages.make_regime(
                regimes, workdir / stages.REGIME, records[stages.REGIME], args.workers, args.seeds
            )
    results = stages.write_results(study, extent, regimes, parts, workdir, records, out, args.document)
    if args.json:
        print_json({"failed": failed, "results": results})
    sys.exit(1 if failed else 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--part", choices=(*PARTS, "all"), default="all", help="default: all")
    add("--quick", action="store_true", help="tiny and few runs; the numbers mean nothing")
    add("--workdir", type=Path, help="the folder of all workdirs (default: runs/study, with --quick runs/study-quick)")
    add_count(parser, "--workers", default=2, help="runs at a time, each on a core of its own (default: 2)")
    add_count(parser, "--seeds", metavar="N", help="only the first N of each part's reported seeds (default: all)")
    add("--records", type=Path, help="where small files are, in smollm2/ and regime/ (default: docs/results)")
    add("--no-runs", action="store_true", help="tables and figures of what is there")
    add("--from-numbers", action="store_true", help="tables and figures of the JSON files in --out, without runs")
    add("--out", type=Path, help="where JSON files and figures go (default: WORKDIR/results)")
    add("--document", type=Path, metavar="FILE", help="a Markdown file whose tables are written anew")
    add("--json", action="store_true", help="print a one-line JSON summary at the end")
    return parser


if __name__ == "__main__":
    main_with_errors(main)
