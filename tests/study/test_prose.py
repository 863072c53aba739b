"""Every measured number in the text of docs/results.md, and of README.md on the study, is derived from committed files.

`claims` are the sentences that have them, written anew; what is left of the text has none.
"""

import re
from pathlib import Path

import numpy as np
from study.curve_files import evals_of
from study.smollm2 import FULL_EXTENT
from study.stages import read_results
from study.trial_tables import reported
from study.trials import read_records

from pods_jax.analysis import paper
from pods_jax.analysis.curves import cost_at_crossing
from pods_jax.analysis.published_file import reader
from pods_jax.io import read_json

ROOT = Path(__file__).parents[2]
RESULTS = read_results(ROOT / "docs" / "results")
LEVELS = ("0.8", "0.9", "0.95")
TARGETS = ("0.44", "0.51", "0.56")
MEASURED = re.compile(r"\d+\.\d+|\d+,\d{3}|\d+(?= %| ms)")
"""What looks like a result: decimals, thousands, per cent, milliseconds."""
SETTINGS = re.compile(
    r"policies of 0\.2 and 2\.1 million|a policy of 2\.1 million"
    r"|(?<![\d.] to )\b(?:44|51|56|80|90|95|99)(?=(?:, \d\d)*(?: and \d\d)? %)(?! % \[)"
)
"""Numbers of the study's definition: sizes of policies, and levels of accuracy that are asked for."""


def prose(document):
    """The text without tables, commands and what says how runs are made, on one line."""
    made = r"## Protocol\n.*?(?=\n## )|## (?:A pretrained language model|A map of regimes)\n.*?(?=<!-- study:)"
    text = re.sub(made, "", document, flags=re.DOTALL)
    text = re.sub(r"<!-- study:.*?<!-- end -->|```.*?```", "", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", text)


def problems(document, claims):
    """Claims that the text does not make, and what looks measured beside them."""
    text = prose(document)
    missing = [claim for claim in claims if claim not in text]
    for claim in sorted(claims, key=len, reverse=True):
        text = text.replace(claim, "")
    return missing + MEASURED.findall(SETTINGS.sub("", text))


# ---------------------------------------------------------------- cells of the tables


def ratios(table, baseline, variant, key="paired", levels=LEVELS):
    numbers = RESULTS[table]
    found = (numbers.get("speed_ups") or numbers["ratios"])[baseline][variant]
    return [found[level][key] for level in levels]


def interval(found, form=".2f"):
    return f"{found['value']:{form}} [{found['low']:{form}}, {found['high']:{form}}]"


def intervals(found):
    *first, last = map(interval, found)
    return f"{', '.join(first)} and {last}"


def of_means(table, baseline, variant):
    found = RESULTS[table]["speed_ups"][baseline][variant]["99 %"]
    return f"{found['ratio']:.2f} [{found['low']:.2f}, {found['high']:.2f}]"


def at_equal_time(table, place, variant):
    found = RESULTS[table]["at_equal_time"][place]["accuracy"][variant]
    high = min(1.0, found["mean"] + found["half_width"])
    return f"{100 * found['mean']:.1f} % [{100 * (found['mean'] - found['half_width']):.1f}, {100 * high:.1f}]"


def seconds(table, place):
    return f"{RESULTS[table]['at_equal_time'][place]['seconds']:.1f} s"


def step(table, variant):
    return RESULTS[table]["rows"][variant]["seconds_per_step"]["step"]


def span(values, form=".2f"):
    return f"{min(values):{form}} to {max(values):{form}}"


def values(found):
    return [f["value"] for f in found]


def listed(found, form=".2f"):
    *first, last = (f"{x:{form}}" for x in found)
    return f"{', '.join(first)} and {last}"


# ---------------------------------------------------------------- what the text says


def claims_on_methods():
    ga, grpo = (ratios("main", b, "pods") for b in ("grpo_ga", "grpo"))
    assert min(f["value"] for f in ga) > 1.7
    assert [f["low"] > 1.7 for f in ga] == [False, True, False]
    assert [f["num"] for f in ga] == [8, 8, 8]
    assert max(f["value"] for f in grpo) < 1
    assert [f["high"] < 1 for f in grpo] == [True, True, False]
    rules = {r: ratios("main", "pods", r) for r in ("percentile", "random")}
    assert max(f["high"] for found in rules.values() for f in found) < 1
    rows = RESULTS["main"]["rows"]
    assert rows["max_reward"]["best"] < 0.8
    slow = [seed for seed in range(10) if all(row["steps_by_seed"]["0.8"][seed] is None for row in rows.values())]
    assert slow == [0, 4]
    ends = [100 * row["lasts"][seed] for name, row in rows.items() if name != "max_reward" for seed in slow]
    dear = [step("main", "pods") / step("main", "grpo")]
    read = reader(ROOT / "docs/published/pods.json")
    theirs = [
        read(s.pods).seconds_per_step / read(s.baseline).seconds_per_step
        for s in paper.SETTINGS.values()
        if s.unit == "h"
    ]
    return [
        f"{interval(ga[0])} times as fast to 80 %, {interval(ga[1])} to 90 % and {interval(ga[2])} to 95 % (eight of",
        "in the mean by the paper's 1.7 and more",
        "above the paper's 1.7, as is the interval to 90 %",
        "accuracy at least 1.7 times as fast",
        f"on mean curves, {of_means('main', 'grpo_ga', 'pods')}.",
        f"after {seconds('main', 0)} {at_equal_time('main', 0, 'pods')} against {at_equal_time('main', 0, 'grpo_ga')}",
        f"end between {min(ends):.0f} and {max(ends):.0f} %",
        f"a factor {step('main', 'grpo_ga') / step('main', 'pods'):.2f} is the cost of a step, "
        f"{1000 * step('main', 'pods'):.0f} in place of {1000 * step('main', 'grpo_ga'):.0f} ms",
        f"level with GRPO-GA ({span(values(ratios('main', 'grpo_ga', 'pods', 'steps')))})",
        f"{listed(values(ratios('main', 'grpo', 'pods', 'steps')))} times fewer steps, each {dear[0]:.2f} times as "
        f"dear, come to {intervals(grpo)}.",
        f"with which it takes fewer steps, each {dear[0]:.1f} times as dear",
        f"which cost {span(theirs, '.1f')} times as much, not {dear[0]:.1f}.",
        f"{intervals(rules['percentile'])} of percentile's",
        f"{intervals(rules['random'])} of random's",
    ]


def claims_on_sizes():
    n = {name: ratios("n", "grpo", name) for name in RESULTS["n"]["speed_ups"]["grpo"]}
    in_steps = [ratios("n", "grpo", name, "steps")[2]["value"] for name in n]
    assert all(f["low"] < 1 < f["high"] for f in n["n=32"])
    assert [f["high"] < 1 for f in n["pods"]] == [True, True, False]
    longer = {name: span([1 / x for x in values(n[name])], ".1f") for name in ("n=128", "n=256")}
    assert max(f["high"] for name in longer for f in n[name]) < 1
    m = {name: ratios("m", "grpo_ga", name) for name in RESULTS["m"]["speed_ups"]["grpo_ga"]}
    fast = {name: values(found) for name, found in m.items()}
    for place in range(3):
        assert fast["m=8"][place] > 0.99 * max(found[place] for found in fast.values())
    for other in ("m=4", "pods"):
        assert all(a["high"] > b["low"] for a, b in zip(m[other], m["m=8"], strict=True))
    level = [x for name in ("m=4", "m=8", "pods", "m=32") for x in values(ratios("m", "grpo_ga", name, "steps"))]
    few = values(ratios("m", "grpo_ga", "m=2", "steps"))
    statistics = ratios("statistics", "pods", "statistics=group")
    assert [f["high"] < 1 for f in statistics] == [False, True, False]
    return [
        f"to 95 % n = 32, 64, 128 and 256 need {listed(in_steps, '.1f')} times fewer than n = 16",
        f"a rollout more costs {1000 * RESULTS['costs']['model']['b']:.2f} ms",
        f"n = 32 is level with n = 16 ({intervals(n['n=32'])} to 80, 90 and 95 %)",
        f"n = 64 is slower to 80 and 90 % ({intervals(n['pods'][:2])}), and to 95 % no difference can be told "
        f"({interval(n['pods'][2])})",
        f"n = 128 takes {longer['n=128']} times as long, n = 256 {longer['n=256']} times",
        f"{span(fast['m=8'], '.1f')} times as fast as m = 64",
        f"level within {100 * (max(*level, 1 / min(level)) - 1):.0f} %; m = 2 needs up to {1 / min(few):.1f} times as "
        "many steps",
        f"no better: {span(fast['m=32'])}.",
        f"{interval(statistics[1])} to 90 %, where to 80 and 95 % no difference can be told "
        f"({intervals(statistics[::2])})",
    ]


def claims_on_the_larger_policy():
    ga, grpo = (ratios("larger", f"larger-{b}", "larger-pods") for b in ("grpo_ga", "grpo"))
    assert min(f["low"] for f in ga) > 1.7
    assert [f["high"] < 1 for f in grpo] == [True, True, False]
    pods, theirs = (step("larger", f"larger-{v}") for v in ("pods", "grpo_ga"))
    dear = pods / step("larger", "larger-grpo")
    disjoint = [
        f"{at_equal_time('larger', i, 'larger-pods')} against {at_equal_time('larger', i, 'larger-grpo_ga')} after "
        f"{seconds('larger', i)}"
        for i in (0, 1)
    ]
    for moment in RESULTS["larger"]["at_equal_time"]:
        pods_then, ga_then = (moment["accuracy"][f"larger-{v}"] for v in ("pods", "grpo_ga"))
        assert pods_then["mean"] - pods_then["half_width"] > ga_then["mean"] + ga_then["half_width"]
    return [
        f"paired, PODS is {intervals(ga)} times",
        f"by the authors' rule {of_means('larger', 'larger-grpo_ga', 'larger-pods')}",
        f"{disjoint[0]}, {disjoint[1]}.",
        f"{1000 * pods:.0f} in place of {1000 * theirs:.0f} ms: per step the methods are level "
        f"({span(values(ratios('larger', 'larger-grpo_ga', 'larger-pods', 'steps')))})",
        f"(c / b is {RESULTS['costs_larger']['update_share']:.1f}, not {RESULTS['costs']['update_share']:.1f})",
        f"{interval(grpo[0])} and {interval(grpo[1])} to 80 and 90 %, and {interval(grpo[2])} to 95 %",
        f"{listed(values(ratios('larger', 'larger-grpo', 'larger-pods', 'steps')))} times fewer steps, each {dear:.2f}",
    ]


def claims_on_costs():
    share = RESULTS["costs"]["update_share_for_gain"]["1.7"]
    return [
        f"a + b n + c m, within {100 * RESULTS['costs']['model']['error']:.0f} %,",
        f"below c / b of about {share:.1f},",
        "saves less than 1.7 times per step; and no machine can make it more than 4",
    ]


def claims_on_allocation():
    grpo, dapo = (ratios("allocation", f"mixed-{b}", "mixed-pilot_commit", levels=TARGETS) for b in ("grpo", "dapo"))
    small_grpo, small_dapo = (
        ratios("small_batch", f"small-{b}", "small-pilot_commit", levels=TARGETS) for b in ("grpo", "dapo")
    )
    assert max(f["high"] for f in grpo) < 1
    assert max(f["high"] for f in dapo) < 2.3
    assert max(values(small_dapo)) < 2.3
    assert all(f["low"] < 1 < f["high"] for f in small_grpo)
    assert (small_grpo[2]["censored"], small_grpo[1]["censored"]) == (2, 1)
    equal = ratios("small_batch", "small-grpo", "small-pilot_commit", "equal_budgets", TARGETS)
    assert all(f["low"] < 1 < f["high"] for f in equal)
    rows = RESULTS["allocation"]["rows"]
    fewer, dearer = [], []
    for target in ("0.44", "0.56"):
        theirs, ours = (rows[f"mixed-{m}"]["rollouts_to"][target] for m in ("grpo", "pilot_commit"))
        fewer.append(100 * (1 - ours["steps"] / theirs["steps"]))
        dearer.append(ours["value"] / ours["steps"] / (theirs["value"] / theirs["steps"]))
    budget = {
        m: RESULTS["small_batch"]["rows"][f"small-{m}"]["rollouts/generated"] for m in ("grpo", "dapo", "pilot_commit")
    }
    reached = RESULTS["small_batch"]["rows"]["small-grpo"]["rollouts_to"]["0.56"]["reached"]
    without = {v: [r["rollouts_to"][t]["by_seed"][2] for t in TARGETS[1:]] for v, r in rows.items()}
    assert {v for v, (at_51, _) in without.items() if at_51} == {"mixed-pilot_commit", "mixed-pilot_commit_pods"}
    assert not any(at_56 for _, at_56 in without.values())
    assert reached == 7
    return [
        "Pilot-Commit needs 1.5 to 1.9 times fewer rollouts than GRPO and 2.3 to 4.0 times fewer than DAPO",
        f"{interval(dapo[0])} times fewer rollouts to 44 %, {interval(dapo[1])} to 51 % and {interval(dapo[2])} to 56",
        "where the paper's least is 2.3.",
        f"needs {span([1 / x for x in values(grpo)], '.1f')} times as many rollouts ({interval(grpo[0])}, "
        f"{grpo[1]['value']:.2f} and {grpo[2]['value']:.2f} in the table)",
        f"needs {span(fewer, '.0f')} % fewer steps (to 44 and 56 %); but a step costs it {span(dearer, '.1f')} times",
        f"{interval(small_grpo[0])} to 44 %, {interval(small_grpo[1])} to 51 % and {interval(small_grpo[2])} to 56 %, "
        f"where with 16 groups they are {values(grpo)[1]:.1f}; the last one counts two seeds",
        f"With equal budgets they are {listed(values(equal))}",
        f"it takes {span(values(small_dapo), '.1f')} times fewer, as with 16 groups: {interval(small_dapo[0])}, "
        f"{interval(small_dapo[1])} and {interval(small_dapo[2])}.",
        f"its budget is {budget['grpo']:,.0f} rollouts, DAPO's {budget['dapo']:,.0f} and Pilot-Commit's "
        f"{budget['pilot_commit']:,.0f}.",
        "at least the problems that are never solved do not",
    ]


def of_trials(setting, variant, cost, baseline="grpo"):
    """To each threshold, the lowest first."""
    found = RESULTS["smollm2"][setting]["ratios"][baseline][variant]
    return [found[share][cost] for share in sorted(found, key=float)]


def by_lines(setting, baseline, variant, threshold, key):
    """The geometric mean of ratios of a cost, read off where straight lines between evaluations cross the threshold."""
    found = read_records(FULL_EXTENT, ROOT / "docs" / "results" / "smollm2")
    runs = [reported(FULL_EXTENT, setting, method, found) for method in (baseline, variant)]
    costs = [[cost_at_crossing(evals_of(r[s].curve), threshold, key) for s in FULL_EXTENT.seeds] for r in runs]
    return np.exp(np.mean(np.log(costs[0]) - np.log(costs[1])))


def in_time_by_lines(setting, baseline, variant, threshold):
    prices = [RESULTS["smollm2"][setting]["rows"][method]["step_seconds"] for method in (baseline, variant)]
    return prices[0] / prices[1] * by_lines(setting, baseline, variant, threshold, "step")


def share(found):
    return f"{100 * found['value']:.1f} % [{100 * found['low']:.1f}, {100 * found['high']:.1f}]"


def of_regime(setting, variant, cost, threshold="0.5"):
    return RESULTS["regime"][setting]["ratios"][variant][threshold][cost]


def foretold(setting, variant, threshold="0.5"):
    return of_regime(setting, variant, "predicted", threshold)[0]


def claims_on_the_language_model():
    P1 = "chain_sum-P1"
    rows = RESULTS["smollm2"][P1]["rows"]
    cost = {method: row["step_seconds"] for method, row in rows.items() if "step_seconds" in row}
    ends = {method: 100 * rows[method]["last"]["value"] for method in rows}
    steps, time, rollouts = (of_trials(P1, "pods", c) for c in ("steps", "seconds", "rollouts"))
    assert [t["low"] > 1 for t in steps] == [True, True, False]
    assert [t["low"] > 1 for t in time] == [False, True, False]
    assert rollouts[2]["low"] < 1 < rollouts[2]["high"]
    over_ga = of_trials(P1, "pods", "seconds", "grpo_ga")
    assert min(t["low"] for t in over_ga) > 1
    assert min(t["value"] for t in over_ga) > 1.7
    assert rows["pods"]["rate"] == 2 * rows["grpo_ga"]["rate"]
    ga = of_trials(P1, "grpo_ga", "seconds")
    assert max(t["value"] for t in ga) < 1
    of_32 = of_trials(P1, "pods_32", "seconds")
    assert interval(of_trials(P1, "pods_32", "steps", "grpo_ga")[0]) == "2.00 [2.00, 2.00]"
    assert all(many["high"] - many["low"] < few["high"] - few["low"] for many, few in zip(of_32, time, strict=True))
    return [
        f"{intervals(over_ga)} times in time to 10, 25 and 50 %, all above 1, the means above the paper's 1.7",
        f"A step takes {cost['pods']:.2f} s in place of {cost['grpo_ga']:.2f} s, and PODS takes "
        f"{listed(values(of_trials(P1, 'pods', 'steps', 'grpo_ga')))} times fewer of them",
        f"to 10, 25 and 50 % PODS takes {intervals(steps)} times fewer steps than GRPO, and each costs "
        f"{cost['pods'] / cost['grpo']:.2f} times as much: in time {intervals(time)}, {time[0]['pairs']} seeds",
        f"{ends['pods']:.1f} % after the last step, GRPO {ends['grpo']:.1f} % and random {ends['random']:.1f} %",
        f"over GRPO {intervals(of_32)} in time",
        f"it is {interval(of_trials(P1, 'pods_32', 'seconds', 'grpo_ga')[2])} times as fast to 50 %",
        f"it takes {listed(values(of_trials(P1, 'grpo_ga', 'steps')))} times fewer steps, each "
        f"{cost['grpo_ga'] / cost['grpo']:.2f} times as dear, and in time {intervals(ga)}",
        f"Random rollouts, four of 16, take as many steps as GRPO: {listed(values(of_trials(P1, 'random', 'steps')))} "
        "to 10, 25 and 50 %",
        f"{interval(rollouts[2])} to 50 %",
        "An interval such as [2.00, 2.00] says",
        f"where straight lines cross 50 %, as in the map of regimes, PODS would be "
        f"{in_time_by_lines(P1, 'grpo', 'pods', 0.5):.2f} times as fast as GRPO and "
        f"{in_time_by_lines(P1, 'grpo_ga', 'pods', 0.5):.2f} times as fast as GRPO-GA",
    ]


def claims_on_pilot_commit_of_the_language_model():
    P1 = "chain_sum-P1"
    rows = RESULTS["smollm2"][P1]["rows"]
    steps, rollouts = (of_trials(P1, "pilot_commit", cost, "grpo_ga") for cost in ("steps", "rollouts"))
    lines = by_lines(P1, "grpo_ga", "pilot_commit", 0.5, "rollouts/generated")
    budgets = [rows[method]["budget"]["rollouts"] for method in ("pilot_commit", "grpo_ga")]
    assert max(r["value"] for r in rollouts) < 1
    assert max(rows, key=lambda method: rows[method]["last"]["value"]) == "pilot_commit"
    return [
        f"to 10, 25 and 50 % {intervals(steps)} times fewer steps, and in rollouts {intervals(rollouts)}, below",
        f"Where straight lines cross 50 % the ratio of rollouts is {lines:.2f}. It ends highest, at "
        f"{share(rows['pilot_commit']['last'])}, after {budgets[0]:,.0f} rollouts in place of {budgets[1]:,.0f}.",
    ]


def claims_on_the_language_model_with_four_prompts():
    table = RESULTS["smollm2"]["chain_sum-P4"]
    shares = {method: share(row["last"]) for method, row in table["rows"].items()}
    time = of_trials("chain_sum-P4", "pods", "seconds")
    assert all(t["low"] < 1 < t["high"] for t in time)
    second, best = sorted(table["tuning"]["grpo"].values())[-2:]
    return [
        f"PODS is {intervals(time)} times as fast to 10, 25 and 50 %",
        f"it has {shares['pods']}, GRPO {shares['grpo']} and random {shares['random']}: the rate of these two was the "
        f"better one by {100 * (best - second):.1f} points",
    ]


def claims_on_products():
    rows = RESULTS["smollm2"]["products-P1"]["rows"]
    over_ga, over = (of_trials("products-P1", "pods", "seconds", b) for b in ("grpo_ga", "grpo"))
    shares = {method: share(row["last"]) for method, row in rows.items()}
    to_a_tenth = sorted(rows["pods"]["to"]["0.1"]["steps"]["by_seed"])
    assert all(t["low"] < 1 < t["high"] for t in over_ga + over)
    assert rows["pods"]["rate"] == rows["grpo_ga"]["rate"] > rows["grpo"]["rate"]
    assert to_a_tenth[-2] <= 15 < 50 <= to_a_tenth[-1]
    return [
        f"PODS is {intervals(over_ga)} times as fast as GRPO-GA to 10, 25 and 40 %, and {intervals(over)} times as "
        "fast as GRPO",
        f"PODS has {shares['pods']}, GRPO-GA {shares['grpo_ga']}, GRPO {shares['grpo']} and random {shares['random']}",
    ]


def claims_on_regimes():
    addition, chatter = ([f"{task}-P{P}" for P in (1, 4, 16)] for task in ("addition", "chatter"))
    mixed = [f"mixed-P{P}" for P in (2, 4, 16)]
    steps, time = ([of_regime(s, "pods", cost) for s in addition] for cost in ("measured", "seconds"))
    beside = {cost: [of_regime(s, "pods", cost) for s in chatter] for cost in ("measured", "seconds")}
    random = values([of_regime(s, "random", "measured") for s in addition])
    ga = {cost: values([of_regime(s, "grpo_ga", cost) for s in addition]) for cost in ("measured", "seconds")}
    commit = {c: [of_regime(s, "pilot_commit", c, "0.51") for s in mixed] for c in ("measured", "rollouts")}
    assert min(t["low"] for t in time[:2] + beside["seconds"][:2]) > 1
    assert time[2]["high"] < 1
    assert beside["seconds"][2]["low"] < 1 < beside["seconds"][2]["high"]
    of_methods = [(s, m, "0.5") for s in addition + chatter for m in ("pods", "grpo_ga")]
    pairs = of_methods + [(s, "pilot_commit", "0.51") for s in mixed]
    assert min(of_regime(s, m, "measured", t)["low"] for s, m, t in pairs) > 1
    assert min(foretold(s, m, t) for s, m, t in pairs) > 1
    high = sum(foretold(s, m, t) > of_regime(s, m, "measured", t)["value"] for s, m, t in pairs)
    slow = read_json(ROOT / "docs/results/regime/chatter_step_costs.json")["seconds"]["chatter-P4-grpo_ga"]
    assert RESULTS["regime"]["chatter-P16"]["seeds"] == 40
    return [
        f"to 50 % it takes {interval(steps[0])} times fewer steps than GRPO with one prompt a step, "
        f"{interval(steps[1])} with 4, and {interval(steps[2])} with 16",
        f"in time {intervals(time)}",
        f"takes as many steps as GRPO ({listed(random)})",
        f"With chatter it takes {intervals(beside['measured'])} times fewer steps, and in time it is "
        f"{intervals(beside['seconds'])}",
        f"It takes {listed(ga['measured'], '.1f')} times fewer steps than GRPO, and in time "
        f"{listed(ga['seconds'], '.1f')}",
        f"from {1000 * slow['step_interval'][0]:.0f} to {1000 * slow['step_interval'][1]:.0f} ms",
        f"too high in {high} of {len(pairs)}",
        f"For PODS it foretells {listed([foretold(s, 'pods') for s in addition], '.1f')}, for GRPO-GA "
        f"{listed([foretold(s, 'grpo_ga') for s in addition], '.1f')}",
        f"to 51 % it takes {intervals(commit['measured'])} times fewer steps than GRPO with 2, 4 and 16 prompts a "
        f"step, where {listed([foretold(s, 'pilot_commit', '0.51') for s in mixed])} are foretold, and in "
        f"rollouts {intervals(commit['rollouts'])}",
    ]


PARTS = (
    claims_on_methods, claims_on_sizes, claims_on_the_larger_policy, claims_on_costs, claims_on_allocation,
    claims_on_the_language_model, claims_on_pilot_commit_of_the_language_model,
    claims_on_the_language_model_with_four_prompts, claims_on_products, claims_on_regimes,
)  # fmt: skip
CLAIMS = [claim for claims in PARTS for claim in claims()]
RESULTS_MD = (ROOT / "docs" / "results.md").read_text()


def test_the_measured_numbers_of_the_text_are_derived():
    assert problems(RESULTS_MD, CLAIMS) == []


def test_a_changed_number_is_noticed():
    """Each of them, one after the other, raised by one in its last digit."""
    text = prose(RESULTS_MD)
    settings = {m.start() for m in SETTINGS.finditer(text)}
    inside = [m for m in MEASURED.finditer(text) if m.start() not in settings and "million" not in text[m.end() :][:16]]
    assert len(inside) > 120
    for found in inside:
        last = found.end() - 1
        changed = f"{text[:last]}{(int(text[last]) + 1) % 10}{text[last + 1 :]}"
        assert problems(changed, CLAIMS), text[found.start() - 40 : found.end() + 40]


def test_what_the_readme_says_of_the_study():
    text = prose((ROOT / "README.md").read_text())
    ga, grpo = (ratios("main", b, "pods")[1] for b in ("grpo_ga", "grpo"))
    over = {b: ratios("allocation", f"mixed-{b}", "mixed-pilot_commit", levels=TARGETS)[1] for b in ("grpo", "dapo")}
    assert over["grpo"]["high"] < 1 < over["dapo"]["low"]
    assert grpo["high"] < 1
    assert (
        f"PODS is {ga['value']:.1f} times as fast as GRPO-GA, and slower than plain GRPO ({grpo['value']:.2f}x); "
        f"Pilot-Commit takes {over['dapo']['value']:.1f} times fewer rollouts than DAPO, and more than GRPO "
        f"({over['grpo']['value']:.2f}x). With few" in text
    )
    few = [of_regime(s, "pods", "seconds") for s in ("addition-P1", "addition-P4")]
    few.append(of_regime("mixed-P2", "pilot_commit", "rollouts", "0.51"))
    assert min(f["low"] for f in few) > 1
    at_one, at_four, commit = (f"{f['value']:.2f}x" for f in few)
    assert f"PODS is {at_one} as fast with 1 prompt and {at_four} with 4, and Pilot-Commit takes {commit} fewer" in text
    over = {b: of_trials("chain_sum-P1", "pods", "seconds", b) for b in ("grpo_ga", "grpo")}
    assert [[t["low"] > 1 for t in found] for found in over.values()] == [[True, True, True], [False, True, False]]
    assert f"({over['grpo'][0]['pairs']} seeds" in text
    faster_ga, faster = (listed(values(found), ".1f") for found in over.values())
    assert f"PODS is in the mean {faster_ga} times as fast as GRPO-GA to 10, 25 and 50 %" in text
    assert f"{faster} times as fast as GRPO, " in text
    assert all(t["low"] < 1 < t["high"] for t in of_trials("chain_sum-P4", "pods", "seconds"))
    assert "With 4 prompts a step no difference to GRPO can be told, and on products none" in text
