"""The command `plan`: a plan of a step, or a sweep over n or m, as tables for a person and as JSON for a program."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pods_jax.config.schema import Config
from pods_jax.errors import UserError
from pods_jax.io import make_folder
from pods_jax.planning.arithmetic import WHY, ProgramEstimate, estimates, gpus, stand_ins
from pods_jax.planning.chips import CHIPS, topology_devices
from pods_jax.planning.layouts import Suggestion, suggestions
from pods_jax.planning.size_sweep import SizeSweep, draw, sweep_sizes
from pods_jax.planning.step_plan import Phase, StepPlan, plan_step


def print_plan(plan: StepPlan, console: Console) -> None:
    """Prints tables of memory, of work and time, and the verdict."""
    console.print(_title(plan))
    console.print(_memory_table(plan))
    console.print(_work_table(plan))
    console.print(verdict(plan))


def _title(plan: StepPlan) -> str:
    c = plan.run.config
    r = c.rollout
    mesh = ", ".join(f"{name} {size}" for name, size in plan.run.mesh.shape.items())
    return (
        f"{c.model.path or 'model'} on {plan.topology} ({mesh}): {r.num_prompts} prompts of {r.max_prompt_length} "
        f"tokens, n = {r.num_generations} rollouts of {r.max_completion_length}, m = {c.selection.num_kept} trained on"
    )


def size(num_bytes: float) -> str:
    """Bytes as text with about three digits, in B, KiB, MiB or GiB."""
    for unit in ("B", "KiB", "MiB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:,.1f} GiB"


def memory_rows(plan: StepPlan) -> dict[str, list[int]]:
    """Bytes on one device by part, a number for each phase: the compiler's sums, split where a formula gives a part."""
    rows: dict[str, list[int]] = {}
    for i, phase in enumerate(plan.phases):
        for name, num_bytes in _parts(phase).items():
            rows.setdefault(name, [0] * len(plan.phases))[i] = num_bytes
    return rows


def _parts(phase: Phase) -> dict[str, int]:
    m = phase.memory
    p = phase.program
    if not m.fits:
        return {"asked for, at least": m.temporaries, "not seen by the program": m.beside}
    parts = p.given | {"other arguments": m.arguments - sum(p.given.values())}
    within = p.within if sum(p.within.values()) <= m.temporaries else {}  # small ones may be on the chip itself
    parts |= within | {"other temporaries": m.temporaries - sum(within.values())}
    return parts | {"outputs": m.outputs, "program": m.code, "not seen by the program": m.beside}


def _memory_table(plan: StepPlan) -> Table:
    table = Table("on each device", title="memory: the compiler's numbers")
    for phase in plan.phases:
        table.add_column(phase.program.name, justify="right")
    for name, sizes in memory_rows(plan).items():
        table.add_row(name, *(size(x) if x else "" for x in sizes))
    table.add_section()
    table.add_row("peak", *(size(phase.memory.peak) for phase in plan.phases))
    return table


def _work_table(plan: StepPlan) -> Table:
    title = "arithmetic by formula, traffic from the program, times an ESTIMATE: at the chip's peaks"
    table = Table("in a step", title=title)
    for phase in plan.phases:
        table.add_column(phase.program.name, justify="right")
    table.add_row("runs", *(str(p.program.runs) for p in plan.phases))
    table.add_row("TFLOP, all devices", *(f"{p.program.flops * p.program.runs / 1e12:,.3g}" for p in plan.phases))
    moved = [p.moved_bytes * p.program.runs for p in plan.phases]
    table.add_row("a device moves in its memory", *(size(x) if x else "" for x in moved))
    for kind in sorted({kind for phase in plan.phases for kind in phase.traffic}):
        sent = [p.traffic[kind].sent_bytes * p.program.runs if kind in p.traffic else 0.0 for p in plan.phases]
        table.add_row(f"a device sends: {kind}", *(size(x) if x else "" for x in sent))
    for name in ("compute", "memory", "interconnect"):
        if any(name in phase.times_s for phase in plan.phases):
            table.add_row(f"s at peak {name}", *(f"{p.times_s.get(name, 0.0):.3f}" for p in plan.phases))
    table.add_section()
    table.add_row("s at the least", *(f"{p.time_s:.3f} ({p.bound})" if p.bound else "?" for p in plan.phases))
    return table


def verdict(plan: StepPlan) -> str:
    """Whether the step fits, in one sentence."""
    peak = size(plan.peak_bytes)
    if plan.chip is None:
        return f"A device needs {peak}; there are no numbers for this device to compare with."
    has = f"{size(CHIPS[plan.chip].hbm_bytes)} of a {plan.chip}"
    tight = [phase.program.name for phase in plan.phases if not _phase_fits(phase, plan.chip)]
    if tight:
        return f"DOES NOT FIT: {' and '.join(tight)} need up to {peak}, more than the {has}."
    time_s = sum(phase.time_s for phase in plan.phases)
    return f"fits: {peak} at the peak, of the {has}. ESTIMATE: a step takes at least {time_s:.2f} s on the devices."


def _phase_fits(phase: Phase, chip: str) -> bool:
    return phase.memory.fits and phase.memory.peak <= CHIPS[chip].hbm_bytes


def to_json(plan: StepPlan) -> dict[str, Any]:
    """The plan as JSON-able values; bytes are of one device, FLOPs of all."""
    rows = memory_rows(plan)
    return {
        "topology": plan.topology,
        "mesh": dict(plan.run.mesh.shape),
        "chip": plan.chip,
        "fits": plan.fits,
        "peak_bytes": plan.peak_bytes,
        "time_s_estimate": sum(phase.time_s for phase in plan.phases),
        "phases": {phase.program.name: _phase_json(phase, rows, i) for i, phase in enumerate(plan.phases)},
    }


def _phase_json(phase: Phase, rows: dict[str, list[int]], place: int) -> dict[str, Any]:
    """The numbers of the phase at a place in the plan, of all its runs in a step."""
    runs = phase.program.runs
    return {
        "bytes": {name: sizes[place] for name, sizes in rows.items() if sizes[place]},
        "peak_bytes": phase.memory.peak,
        "compiled": phase.memory.fits,
        "runs": runs,
        "flops": phase.program.flops * runs,
        "moved_bytes": phase.moved_bytes * runs,
        "sent_bytes": {kind: traffic.sent_bytes * runs for kind, traffic in phase.traffic.items()},
        "times_s_estimate": phase.times_s,
        "compile_s": phase.compile_s,
    }


def print_sweep(sweep: SizeSweep, console: Console) -> None:
    """Prints the curve as a table, and the size at which memory runs out."""
    table = Table(sweep.symbol, "rollouts", "on each device", "of which temporaries", "fits", "s at the least")
    for p in sweep.points:
        fits = {True: "yes", False: "no", None: "?"}[p.fits]
        time_s = f"{p.time_s:.3f}" if p.time_s else "?"
        table.add_row(str(p.value), f"{p.rollouts:,}", size(p.peak_bytes), size(p.temporary_bytes), fits, time_s)
    console.print(table)
    if sweep.largest is not None:
        console.print(
            f"ESTIMATE, by a straight line through the last two points that compiled: memory runs out past "
            f"{sweep.symbol} = {sweep.largest:,}, which is {sweep.largest_rollouts:,} rollouts {sweep.verb} in a step."
        )


# ---------------------------------------------------------------- the command


def run(
    config: Config, topology: str, symbol: str | None, values: list[int] | None, out: Path | None
) -> dict[str, Any]:
    """Prints a plan, or the curve of a sweep over `symbol` ("n" or "m"), which is drawn to `out`. Returns the summary.

    Raises:
      UserError: no such topology; `values` or `out` without a symbol; `out` is no place for a PNG.
    """
    if symbol is None and (values or out is not None):
        raise UserError("--values and --out are of a sweep: give --sweep m or --sweep n")
    if out is not None:
        _check_out(out)
    console = Console(highlight=False, soft_wrap=True)
    if found := gpus(topology):
        if symbol is not None:
            raise UserError(f"--sweep finds where memory runs out, which needs a compiler. {WHY.format(chip=found[0])}")
        return _run_arithmetic(config, topology, *found, console)
    devices = topology_devices(topology)
    if symbol is None:
        plan = plan_step(config, topology, devices, console.print)
        print_plan(plan, console)
        better = list(suggestions(plan, devices, console.print))
        for suggestion in better:
            console.print(_suggested(suggestion))
        return to_json(plan) | {"suggestions": [suggestion._asdict() for suggestion in better]}
    curve = sweep_sizes(config, symbol, topology, devices, console.print, values and sorted(set(values)))
    print_sweep(curve, console)
    summary = curve._asdict() | {"points": [point._asdict() for point in curve.points]}
    if out is not None:
        out.with_suffix(".json").write_text(json.dumps(summary, indent=1) + "\n")
        draw(curve, out)
    return summary


def _suggested(s: Suggestion) -> str:
    return (
        f"{s.phase} is bound by the interconnect: {s.before_s:.3g} s. ESTIMATE: with {s.options} it fits, and takes "
        f"{s.after_s:.3g} s."
    )


def _run_arithmetic(config: Config, topology: str, chip: str, count: int, console: Console) -> dict[str, Any]:
    found = estimates(config, chip, stand_ins(count))
    console.print(WHY.format(chip=chip))
    console.print(_arithmetic_table(found))
    most = max(estimate.bytes for estimate in found)
    has = CHIPS[chip].hbm_bytes
    fits = "DOES NOT FIT" if most > has else "may fit, if activations do"
    console.print(f"{fits}: these arrays take {size(most)} on each device, of the {size(has)} of a {chip}.")
    phases = {
        e.program.name: {
            "bytes": e.parts,
            "runs": e.program.runs,
            "flops": e.program.flops * e.program.runs,
            "times_s_estimate": {"compute": e.compute_s} | ({"memory": e.memory_s} if e.memory_s else {}),
        }
        for e in found
    }
    summary = {"topology": topology, "chip": chip, "compiled": False, "fits": False if most > has else None}
    return summary | {"phases": phases}


def _arithmetic_table(found: list[ProgramEstimate]) -> Table:
    table = Table("on each device", title="by formula only")
    for estimate in found:
        table.add_column(estimate.program.name, justify="right")
    for name in dict.fromkeys(name for estimate in found for name in estimate.parts):
        table.add_row(name, *(size(e.parts[name]) if e.parts.get(name) else "" for e in found))
    table.add_row("sum", *(size(e.bytes) for e in found))
    table.add_section()
    table.add_row("runs in a step", *(str(e.program.runs) for e in found))
    table.add_row("TFLOP, all devices", *(f"{e.program.flops * e.program.runs / 1e12:,.3g}" for e in found))
    table.add_row("s at peak compute", *(f"{e.compute_s:.3f}" for e in found))
    reads = (f"{e.memory_s:.3f}" if e.memory_s else "" for e in found)
    table.add_row("s to read weights and cache for each token", *reads)
    return table


def _check_out(out: Path) -> None:
    if out.suffix != ".png" or out.is_dir():
        raise UserError(f"--out {out}: the curve is drawn as a .png file")
    make_folder(out.parent, "--out")
