"""A report of a finished or running run: one HTML file that needs nothing else, with figures, tables and samples."""

import html
import io
import string
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pods_jax.analysis.curves import PHASES
from pods_jax.analysis.figures import draw_learning_curve, learning_curve
from pods_jax.analysis.report_figures import draw_health, draw_rewards, draw_seconds, health_rows
from pods_jax.analysis.runs import RunRecord, describe, read_run
from pods_jax.analysis.style import new_figure
from pods_jax.config.schema import changes
from pods_jax.errors import UserError
from pods_jax.io import write_atomic, writing

SAMPLES = 6
"""Records of samples.jsonl that are shown: spread over the run, the first and the last among them."""


def write_report(workdir: Path, out: Path) -> None:
    """Writes the report of a workdir to `out`, and draws learning_curve.png in the workdir anew.

    Raises:
      UserError: the workdir has no config or no evaluation yet, a file in it is damaged, or a file cannot be written.
    """
    run = read_run(workdir)
    if not run.evals:
        raise UserError(f"{workdir} has no evaluation yet, so there is nothing to report")
    with writing(workdir):
        learning_curve(workdir, workdir / "learning_curve.png")
    with writing(out, "report"):
        write_atomic(out, report_html(run))


def report_html(run: RunRecord) -> str:
    """The whole page. run: with one evaluation at least."""
    sections = {
        "Summary": _rows(_summary(run)),
        "Learning curve": _svg(2.6, lambda figure: draw_learning_curve(figure, run)),
        "Health": _svg(1.5 * health_rows(run), lambda figure: draw_health(figure, run)) if health_rows(run) else "",
        "Seconds": _seconds(run) if run.metrics else "",
        "Rewards kept and dropped": _rewards(run) if run.samples else "",
        "Samples": "\n".join(map(_sample, _spread(run.samples))),
        "Config, where it is not the default": _rows({key: repr(value) for key, value in changes(run.config).items()}),
    }
    parts = (f"<section><h2>{name}</h2>\n{content}\n</section>" for name, content in sections.items() if content)
    return _PAGE.substitute(title=_escaped(run.title), state=_escaped(_state(run)), body="\n".join(parts))


# ---------------------------------------------------------------- tables


def _state(run: RunRecord) -> str:
    last = max(record["step"] for record in (*run.metrics[-1:], *run.evals[-1:]))
    state = "finished" if run.finished else "not finished"
    return f"{run.workdir}: {state}, step {last} of {run.config['training']['num_steps']}"


def _summary(run: RunRecord) -> dict[str, str]:
    """Scores at first, last and best; what was spent."""
    lines = {}
    for key in ("accuracy", "greedy_accuracy"):
        values = {e["step"]: e[key] for e in run.evals if e.get(key) is not None}
        if values:
            scores = list(values.values())
            best = max(values, key=values.get)
            said = f"{scores[0]:.1%} at first, {scores[-1]:.1%} last, {values[best]:.1%} at best (step {best})"
            lines[key.replace("_", " ")] = said
    if run.metrics:
        last = run.metrics[-1]
        lines["training time"] = f"{last['wall_time_s']:,.1f} s, without evaluation and compilation"
        for unit in ("rollouts", "tokens"):
            generated, trained = (last.get(f"{unit}/{fate}", np.nan) for fate in ("generated", "trained"))
            lines[unit] = f"{generated:,.0f} generated, {trained:,.0f} trained on"
    return lines


def _seconds(run: RunRecord) -> str:
    """The seconds of a step by phase as a figure, and their sums over the run."""
    spent = {phase: sum(m.get(f"time/{phase}_s") or 0.0 for m in run.metrics) for phase in (*PHASES, "compile")}
    spent["eval"] = sum(e.get("time/eval_s") or 0.0 for e in run.evals)
    figure = _svg(1.1, lambda figure: draw_seconds(figure, run))
    return figure + _rows({f"{phase}, in all": f"{seconds:,.1f} s" for phase, seconds in spent.items()})


def _rewards(run: RunRecord) -> str:
    note = f"The {len(run.samples)} groups in samples.jsonl; dots are moved a little, so that equal ones are seen."
    return f"<p>{note}</p>" + _svg(2.4, lambda figure: draw_rewards(figure, run))


def _rows(values: Mapping[str, str]) -> str:
    rows = (f"<tr><th>{_escaped(name)}</th><td>{_escaped(value)}</td></tr>" for name, value in values.items())
    return f"<table>{''.join(rows)}</table>"


def _spread(records: list[Any]) -> list[Any]:
    """Up to SAMPLES records, at equal distances."""
    places = np.linspace(0, len(records) - 1, min(SAMPLES, len(records)))
    return [records[i] for i in places.round().astype(int)]


def _sample(record: Mapping[str, Any]) -> str:
    """A heading, the prompt and its gold, and a row for each rollout shown."""
    reading = f"<br>{_escaped(record['reads'])}" if record["reads"] else ""
    return (
        f"<h3>step {record['step']}: {len(record['kept'])} of {len(record['rewards'])} rollouts kept</h3>"
        f"<pre>{_escaped(record['prompt'])}</pre><p>gold: <code>{_escaped(record['gold'])}</code>{reading}</p>"
        f"<table>{''.join(map(_sample_row, record['rollouts']))}</table>"
    )


def _sample_row(rollout: Mapping[str, Any]) -> str:
    reading = f"<p>{_escaped(rollout['reads'])}</p>" if rollout["reads"] else ""
    sort = "kept" if rollout["kept"] else "dropped"
    text = f"<pre>{_escaped(rollout['completion'])}</pre>{reading}"
    return f'<tr class="{sort}"><th>{_escaped(describe(rollout))}</th><td>{text}</td></tr>'


def _escaped(value: Any) -> str:
    """Text that a browser shows as it is; characters that cannot be shown, which HTML may not hold, by their names."""
    shown = (c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in str(value))
    return html.escape("".join(shown))


def _svg(height_in: float, draw: Callable[[Figure], None]) -> str:
    """A figure as an element of the page."""
    buffer = io.StringIO()
    with new_figure(height_in) as figure:
        draw(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    _, _, element = buffer.getvalue().partition("<svg")
    return f"<figure><svg{element}</figure>"


# ---------------------------------------------------------------- the page


_PAGE = string.Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>$title</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 60em; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.4em; }
h2 { font-size: 1.15em; margin-top: 2em; border-bottom: 1px solid #ddd; }
h3 { font-size: 1em; }
figure { margin: 0; } svg { width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .25em .6em; border-bottom: 1px solid #eee; }
th { font-weight: normal; color: #555; width: 16em; } td p { margin: .2em 0; color: #555; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; font-size: .9em; }
tr.kept th { border-left: 4px solid #D55E00; } tr.dropped th { border-left: 4px solid #B0B0B0; }
</style>
</head>
<body>
<h1>$title</h1>
<p>$state</p>
$body
</body>
</html>
""")
