"""The study's tables as Markdown, and their places in a document, `<!-- study:NAME -->` to `<!-- end -->`."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pods_jax.errors import UserError
from study.definition import ALLOCATION, ANSWERS, LEARNING, VARIANTS
from study.smollm2 import METHODS
from study.tables import Numbers, at, ratios_of

_BLOCK = re.compile(r"(<!-- study:(\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(document: Path, blocks: Mapping[str, str]) -> None:
    """Writes the given blocks into their places; other places stay as they are.

    Raises:
      UserError: the document has no place for one of them.
    """
    text = document.read_text()
    missing = blocks.keys() - {name for _, name, _ in _BLOCK.findall(text)}
    if missing:
        raise UserError(f"{document} has no place <!-- study:{min(missing)} --> ... <!-- end -->")
    document.write_text(_BLOCK.sub(lambda b: f"{b[1]}{blocks[b[2]]}\n{b[3]}" if b[2] in blocks else b[0], text))


def blocks_of(results: Mapping[str, Numbers]) -> dict[str, str]:
    """The blocks of the given results by name: those of `LEARNING`, `ALLOCATION` and the step costs, and "answer"."""
    block_of = dict.fromkeys(LEARNING, learning_block) | dict.fromkeys(ALLOCATION, allocation_block)
    block_of |= {"smollm2": trials_block, "regime": regime_block}
    blocks = {name: block_of.get(name, cost_block)(numbers) for name, numbers in results.items()}
    if {answer.table for answer in ANSWERS} <= results.keys():
        blocks["answer"] = answer_block(results)
    return blocks


def answer_block(results: Mapping[str, Numbers]) -> str:
    """The claims of the papers beside the paired ratios that were measured."""
    rows = []
    for answer in ANSWERS:
        if found := at(results, answer.place):
            pairs = found.get("pairs") or len(results[answer.table]["seeds"])
            rows.append([answer.question, answer.paper, _interval(found, pairs), f"`{answer.table}`"])
    num = sum(map(_num_intervals, results.values()))
    text = (
        f"There are {num} paired intervals of 95 % on this page, many of the same runs and some the inverse of others: "
        f"by chance, some {num / 20:.0f} miss their ratio."
    )
    return f"{_table(['ratio of costs', 'paper', 'here', 'table'], rows)}\n\n{text}"


def _num_intervals(numbers: Numbers) -> int:
    """Number of paired ratios with an interval in a table, or in those of all settings of trials."""
    if settings := [table for table in numbers.values() if isinstance(table, dict) and "tuning" in table]:
        return sum(map(_num_trial_intervals, settings))
    thresholds = [t for rows in ratios_of(numbers).values() for found in rows.values() for t in found.values()]
    return sum(_finite(t[key]["low"]) for t in thresholds for key in ("paired", "equal_budgets") if key in t)


def learning_block(numbers: Numbers) -> str:
    """Rows by variant, speed-ups over each baseline, and accuracies at equal times."""
    thresholds = list(next(iter(numbers["rows"].values()))["steps_to"])
    parts = [_seeds(numbers), _rows_table(numbers, thresholds)]
    seeds = len(numbers["seeds"])
    parts += [_speed_up_table(b, rows, thresholds, seeds) for b, rows in numbers["speed_ups"].items() if rows]
    return "\n\n".join([*parts, _equal_time_table(numbers)])


def _rows_table(numbers: Numbers, thresholds: Sequence[str]) -> str:
    head = ["variant", "n -> m", "ms per step", "best mean", "after the last step"]
    head += [f"steps, s to {_percent(t)}" for t in thresholds]
    rows = [
        [
            _label(name), f"{r['n']} -> {r['m']}", f"{1000 * r['seconds_per_step']['step']:.0f}",
            _percent(r["best"], 1),
            _share(r["last"], r["last_half_width"]),
        ]
        + [_pair(r["steps_to"][t], r["seconds_to"][t]) for t in thresholds]
        for name, r in numbers["rows"].items()
    ]  # fmt: skip
    return _table(head, rows)


def _pair(steps: float | None, seconds: float | None) -> str:
    return f"{steps:.0f}, {seconds:.1f}" if _finite(steps) and _finite(seconds) else "not reached"


def _speed_up_table(baseline: str, by_variant: Mapping[str, Numbers], thresholds: Sequence[str], seeds: int) -> str:
    head = [f"time of {_label(baseline)} over that of", "99 % of its best"]
    for t in thresholds:
        head += [f"to {_percent(t)}", "paired", "in steps"]
    rows = []
    for name, found in by_variant.items():
        cells = [_label(name), _ratio(found["99 %"])]
        for t in thresholds:
            cells += [
                _ratio(found[t]),
                _interval(found[t]["paired"], seeds),
                _number(found[t]["steps"]["value"], ".2f"),
            ]
        rows.append(cells)
    return _table(head, rows)


def _equal_time_table(numbers: Numbers) -> str:
    names = list(numbers["rows"])
    rows = [
        [f"{at['seconds']:.1f} s", *(_accuracy(at["accuracy"][name]) for name in names)]
        for at in numbers["at_equal_time"]
    ]
    return _table(["after", *map(_label, names)], rows)


def cost_block(numbers: Numbers) -> str:
    """Seconds by phase, and the fit."""
    head = ["variant", "n", "m", "ms per step", "sample", "update", "micro-batch: ms per step"]
    rows = [
        [
            _label(name), v["n"], v["m"], _median(v["seconds"]["step"], v.get("step_interval"), ".0f", 1000),
            *(f"{1000 * v['seconds'][k]:.0f}" for k in ("sample", "update")),
            ", ".join(f"{micro}: {1000 * s:.0f}" for micro, s in v["step_by_micro_batch"].items()),
        ]
        for name, v in numbers["variants"].items()
    ]  # fmt: skip
    model = numbers["model"]
    shares = numbers["update_share_for_gain"]
    text = (
        f"{numbers['machine']}, {numbers['cores']} core(s), medians of {numbers['rounds']} interleaved rounds; load "
        f"average {numbers['load'][0]:.1f} before, {numbers['load'][1]:.1f} after.\n\n"
        f"Fit: {1000 * model['a']:.1f} + {1000 * model['b']:.3f} n + {1000 * model['c']:.3f} m milliseconds, off by at "
        f"most {_percent(model['error'])}; c / b = {numbers['update_share']:.2f}, by which a step with m of n costs "
        f"1 / {numbers['gain']:.2f} of one with all n. With this a and b it would be "
        + ", ".join(f"1 / {g} from c / b = {_number(s, '.2f')}" for g, s in shares.items())
        + "."
    )
    return f"{_table(head, rows)}\n\n{text}"


def allocation_block(numbers: Numbers) -> str:
    """Rollouts to each target by variant, then the ratios to each baseline."""
    targets = [str(t) for t in numbers["targets"]]
    head = ["variant", "best mean", "after the last step", *(f"rollouts (steps) to {_percent(t)}" for t in targets)]
    head += ["steps", "rounds", "generated", "trained on"]
    rows = [
        [_label(name), _percent(r["best"], 1), _percent_interval(r["last"])]
        + [_spent(r["rollouts_to"][t]) for t in targets]
        + [f"{r[k]:,.0f}" for k in ("step", "rounds", "rollouts/generated", "rollouts/trained")]
        for name, r in numbers["rows"].items()
    ]  # fmt: skip
    parts = [_seeds(numbers), _table(head, rows)]
    seeds = len(numbers["seeds"])
    return "\n\n".join(
        [*parts, *(_rollout_ratio_table(b, rows, targets, seeds) for b, rows in numbers["ratios"].items())]
    )


def _rollout_ratio_table(baseline: str, by_variant: Mapping[str, Numbers], targets: Sequence[str], seeds: int) -> str:
    head = [f"rollouts of {_label(baseline)} over those of", "99 % of its best"]
    for t in targets:
        head += [f"to {_percent(t)}", "paired", "equal budgets"]
    rows = []
    for name, found in by_variant.items():
        cells = [_label(name), _ratio(found["99 %"])]
        for t in targets:
            cells += [_ratio(found[t]), *(_interval(found[t][key], seeds) for key in ("paired", "equal_budgets"))]
        rows.append(cells)
    return _table(head, rows)


# ---------------------------------------------------------------- trials of a language model


def trials_block(numbers: Numbers) -> str:
    """Each setting's costs to thresholds, ratios, and learning rates; a line where no setting has a reported run."""
    if not numbers:
        return "No reported run is finished yet."
    return "\n\n".join(_setting_block(name, table) for name, table in numbers.items())


def _setting_block(name: str, table: Numbers) -> str:
    runs = sum(len(row["seeds"]) for row in table["rows"].values())
    intervals = _num_trial_intervals(table)
    text = (
        f"**{name}**: {runs} reported run(s), {table['hours']:.1f} hours with those that chose learning rates; "
        f"{intervals} paired intervals of 95 %."
    )
    ratios = [_trial_ratio_table(b, rows, table["thresholds"]) for b, rows in table["ratios"].items() if rows]
    return "\n\n".join([text, _trial_rows(table), *ratios, _rates(table["tuning"])])


def regime_block(numbers: Numbers) -> str:
    """Measured ratios of steps beside the predicted ones; a line where no setting has a reported run."""
    if not numbers:
        return "No reported run is finished yet."
    head = ["setting", "GRPO over", "to", "steps", "steps, predicted", "time", "rollouts", "B inter + intra"]
    rows = []
    for name, table in numbers.items():
        for method, by_threshold in table["ratios"].items():
            label = METHODS[method].look.label
            for t, ratio in by_threshold.items():
                rows.append([name, label, _percent(t), *_ratio_cells(ratio), _noise(table["noise"])])
    hours = sum(table["hours"] for table in numbers.values())
    runs = sum(table["seeds"] for table in numbers.values())
    rates = [f"**{name}**: {_rates(table['tuning'])}" for name, table in numbers.items()]
    text = f"{runs} reported runs, {hours:.1f} hours with those that chose learning rates."
    return "\n\n".join([text, _table(head, rows), *rates])


def _ratio_cells(ratio: Numbers) -> list[str]:
    """The ratios of steps, measured and predicted, of time and of rollouts."""
    steps, seconds, rollouts = (_interval(ratio[k], ratio[k]["pairs"]) for k in ("measured", "seconds", "rollouts"))
    return [steps, _three(ratio["predicted"]), seconds, rollouts]


def _three(found: Sequence[float]) -> str:
    value, low, high = found
    return f"{_number(value, '.2f')}x [{_number(low, '.2f')}, {_number(high, '.2f')}]"


def _noise(by_method: Mapping[str, Numbers]) -> str:
    """The two parts of GRPO's noise scale."""
    found = by_method["grpo"]
    return f"{_number(found['inter'], '.1f')} + {_number(found['intra'], '.1f')}"


def _num_trial_intervals(table: Numbers) -> int:
    """Number of paired ratios with an interval."""
    if "noise" in table:  # of the map of regimes
        thresholds = [r for found in table["ratios"].values() for r in found.values()]
        return sum(_finite(r[key]["low"]) for r in thresholds for key in ("measured", "seconds", "rollouts"))
    by_method = [found for rows in table["ratios"].values() for found in rows.values()]
    return sum(_finite(r["low"]) for found in by_method for by_cost in found.values() for r in by_cost.values())


def _trial_rows(table: Numbers) -> str:
    thresholds = [str(t) for t in table["thresholds"]]
    head = ["method", "n -> m", "rate", "seeds", "s per step", "before", "after the last step", "rollouts in all"]
    head += [f"rollouts (steps) to {_percent(t)}" for t in thresholds]
    rows = [
        [
            METHODS[name].look.label, f"{r['n']} -> {r['m']}", f"{r['rate']:g}", len(r["seeds"]),
            _median(r["step_seconds"], r["step_interval"], ".2f") if "step_seconds" in r else "-",
            _percent_interval(r["first"]), _percent_interval(r["last"]), f"{r['budget']['rollouts']:,.0f}",
        ]
        + [_trial_spent(r["to"][t]) for t in thresholds]
        for name, r in table["rows"].items()
    ]  # fmt: skip
    return _table(head, rows)


def _trial_spent(found: Numbers) -> str:
    """The geometric means over the seeds that get there, and how many they are."""
    seeds = len(found["rollouts"]["by_seed"])
    reached = f"{found['rollouts']['num']} of {seeds} seeds"
    if not found["rollouts"]["num"]:
        return reached
    return f"{found['rollouts']['value']:,.0f} ({found['steps']['value']:.0f}; {reached})"


def _trial_ratio_table(baseline: str, by_method: Mapping[str, Numbers], thresholds: Sequence[float]) -> str:
    """A row for each method and threshold, a column for each cost."""
    costs = max((list(found[str(thresholds[0])]) for found in by_method.values()), key=len)
    rows = [
        [METHODS[name].look.label, _percent(t), *(_cost_ratio(found[str(t)].get(cost)) for cost in costs)]
        for name, found in by_method.items()
        for t in thresholds
    ]
    return _table([f"cost of {METHODS[baseline].look.label} over that of", "to", *costs], rows)


def _cost_ratio(found: Numbers | None) -> str:
    return _interval(found, found["pairs"]) if found else "-"


def _rates(tuning: Mapping[str, Mapping[str, float]]) -> str:
    """The learning rates that were tried, each with its score."""
    found = [
        f"{METHODS[method].look.label} " + ", ".join(f"{rate}: {_percent(score, 1)}" for rate, score in scores.items())
        for method, scores in tuning.items()
        if scores
    ]
    return f"Mean accuracy by learning rate on the seeds that chose it: {'; '.join(found)}."


# ---------------------------------------------------------------- cells


def _table(head: Sequence, rows: Sequence[Sequence]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _label(variant: str) -> str:
    return VARIANTS[variant].look.label


def _seeds(numbers: Numbers) -> str:
    seeds = ", ".join(map(str, numbers["seeds"]))
    return f"Seeds {seeds} of every variant; all runs together took {numbers['hours']:.1f} hours, one core each."


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _number(value: float | None, form: str) -> str:
    return format(value, form) if _finite(value) else "-"


def _median(value: float, interval: Sequence[float] | None, form: str, scale: float = 1.0) -> str:
    """A median with the bounds of its interval, if it has one."""
    value, *bounds = (f"{scale * x:{form}}" for x in (value, *(interval or ())))
    return f"{value} [{', '.join(bounds)}]" if bounds else value


def _percent(value: float | str, digits: int = 0) -> str:
    return f"{100 * float(value):.{digits}f} %"


def _accuracy(found: Numbers | None) -> str:
    return "ended" if found is None else _share(found["mean"], found["half_width"])


def _percent_interval(found: Numbers) -> str:
    return _share(found["value"], found["high"] - found["value"] if _finite(found["high"]) else None)


def _share(value: float, half_width: float | None) -> str:
    """A share in per cent with its interval, cut at 0 and 100; one seed has none: its half-width is NaN or null."""
    if not _finite(half_width):
        return f"{_percent(value, 1)} [-, -]"
    low = max(0.0, value - half_width)
    high = min(1.0, value + half_width)
    return f"{_percent(value, 1)} [{100 * low:.1f}, {100 * high:.1f}]"


def _ratio(found: Numbers) -> str:
    """A speed-up of mean curves with its bootstrap interval, or words where there is none."""
    if found["ratio"] == 0:
        return "not reached"
    if not _finite(found["ratio"]):
        return "reached" if _finite(found["method"]) else "neither"
    return f"{found['ratio']:.2f}x [{_number(found['low'], '.2f')}, {_number(found['high'], '.2f')}]"


def _interval(found: Numbers, seeds: int) -> str:
    """A ratio of paired seeds with its interval, and their number where not all of them count."""
    if not _finite(found["value"]):
        return "-"
    interval = f"[{_number(found['low'], '.2f')}, {_number(found['high'], '.2f')}]"
    remarks = [f"{found['num']} of {seeds} seeds"] if found["num"] < seeds else []
    if censored := found.get("censored"):
        remarks.append(f"{censored} at the budget")
    return f"{found['value']:.2f}x {interval}" + (f" ({', '.join(remarks)})" if remarks else "")


def _spent(found: Numbers) -> str:
    """Mean rollouts with their interval and steps, and how many seeds get there."""
    seeds = len(found["by_seed"])
    reached = f"{found['reached']} of {seeds} seeds"
    if not found["num"]:
        return reached
    remarks = [f"{found['steps']:.0f}"] if _finite(found["steps"]) else []
    remarks += [reached] if found["reached"] < seeds else []
    interval = f"[{_number(found['low'], ',.0f')}, {_number(found['high'], ',.0f')}]"
    return f"{found['value']:,.0f} {interval}" + (f" ({'; '.join(remarks)})" if remarks else "")
