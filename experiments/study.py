"""The study at CPU scale, whole, by one command: runs, step costs, tables and figures.

    python experiments/study.py                          # hours; the same command goes on where it was stopped
    python experiments/study.py --quick                  # a minute or two: that everything works, no results
    python experiments/study.py --part main --no-runs --document docs/results.md   # tables anew, into a document

Parts: `main` (methods), `ablations` (n, m, statistics), `larger` (a policy of ten times the parameters), `allocation`
(who gets rollouts), `small_batch` (the same with a quarter of the prompts in a step), `costs` (seconds per step, of
which all times are made: the machine must be quiet). What is compared is data, in `experiments/study/definition.py`;
docs/results.md tells what came out. --json ends with one line that has every number.
"""

import argparse
import json
import sys
from pathlib import Path

from pods_jax.cli import main_with_errors, print_json
from pods_jax.errors import UserError
from pods_jax.io import finite, make_folder

PARTS = ("main", "ablations", "larger", "allocation", "small_batch", "costs")


def main() -> None:
    args = _parser().parse_args()
    from study.definition import FULL, QUICK

    study = QUICK if args.quick else FULL
    parts = PARTS if args.part == "all" else (args.part,)
    workdir = args.workdir or Path("runs/study-quick" if args.quick else "runs/study")
    out = args.out or workdir / "results"
    make_folder(workdir, "workdir")
    make_folder(out, "folder")
    if args.document and not args.document.is_file():
        raise UserError(f"no document {args.document}")
    failed = {} if args.no_runs else _run(study, args, [p for p in parts if p != "costs"], workdir)
    if "costs" in parts and not args.no_runs:
        for name, variants in study.costs.items():
            _measure(study, variants, workdir / f"{name}.json")
    results = _results(study, parts, workdir, out, args.document)
    if args.json:
        print_json({"failed": failed, "results": results})
    sys.exit(1 if failed else 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--part", choices=(*PARTS, "all"), default="all", help="default: all")
    add("--quick", action="store_true", help="tiny and few runs; the numbers mean nothing")
    add("--workdir", type=Path, help="the folder of all workdirs (default: runs/study, with --quick runs/study-quick)")
    add("--workers", type=int, default=2, help="runs at a time, each on a core of its own (default: 2)")
    add("--seeds", type=int, metavar="N", help="the first N seeds of each part alone (default: all)")
    add("--no-runs", action="store_true", help="tables and figures of what is there")
    add("--out", type=Path, help="where JSON files and figures go (default: WORKDIR/results)")
    add("--document", type=Path, metavar="FILE", help="a Markdown file whose tables are written anew")
    add("--json", action="store_true", help="print a one-line JSON summary at the end")
    return parser


def _run(study, args: argparse.Namespace, parts: list[str], workdir: Path) -> dict[str, str]:
    """Works off the runs of all parts; returns what went wrong by run."""
    from study.runs import runs_of

    from pods_jax.training import sweep

    runs = [run for part in parts for run in runs_of(study, part, workdir, args.seeds)]
    if not runs:
        return {}
    sweep.check([run for run in runs if run.state() != "finished"])
    return sweep.work_off(sweep.Sweep(Path(__file__).with_name("train.py"), args.workers, cores_per_run=1), runs)


def _measure(study, variants: tuple[str, ...], file: Path) -> None:
    """Writes the file of the variants' step costs, unless it is there."""
    if file.is_file():
        print(f"costs    {file} is there; delete it to measure anew")
        return
    from study.costs import measure

    print(f"costs    {len(variants)} variants, {len(study.micro_batches)} micro-batch(es) each", flush=True)
    costs = measure(study, variants, lambda step: print(f"costs    round {step}", flush=True))
    file.write_text(json.dumps(costs, indent=1) + "\n")


def _results(study, parts, workdir: Path, out: Path, document: Path | None) -> dict:
    """Writes a JSON file for each table, and the figures; fills the document's tables, if there is one."""
    from study import document as documents
    from study import figures, tables
    from study.definition import ALLOCATION, LEARNING

    results, drawn = {}, []
    names = [table for part in parts if part != "costs" for table in study.parts[part].tables]
    learning = [n for n in names if n in LEARNING]
    wanted = list(study.costs) if "costs" in parts else dict.fromkeys(LEARNING[n].costs for n in learning)
    costs = {name: _read_costs(workdir / f"{name}.json") for name in wanted}
    for name in learning:
        results[name] = tables.learning_table(LEARNING[name], workdir, costs[LEARNING[name].costs])
        drawn.append(figures.draw_learning(name, workdir, costs[LEARNING[name].costs], out))
        drawn += [figures.draw_steps(name, workdir, out)] if name in ("main", "larger") else []
    for name in (n for n in names if n in ALLOCATION):
        results[name] = tables.allocation_table(ALLOCATION[name], workdir)
        drawn.append(figures.draw_allocation(name, workdir, out))
    for name, measured in costs.items():
        results[name] = tables.cost_table(measured)
        drawn.append(figures.draw_costs(name, measured, out))
    for name, numbers in results.items():
        (out / f"{name}.json").write_text(json.dumps(finite(numbers), indent=1) + "\n")
    blocks = documents.blocks_of(results)
    print("\n\n".join(f"## {name}\n\n{text}" for name, text in blocks.items()))
    if document:
        documents.fill(document, blocks)
    print(f"tables and figures in {out}: {', '.join(p.name for p in drawn)}")
    return results


def _read_costs(file: Path) -> dict:
    if not file.is_file():
        raise UserError(f"{file} is not there: run --part costs first, on a quiet machine")
    return json.loads(file.read_text())


if __name__ == "__main__":
    main_with_errors(main)
