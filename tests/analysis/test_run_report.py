"""The report of a run is one file that a browser shows: well-formed, complete, harmless whatever was generated."""

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from pods_jax.analysis.report_figures import draw_health, draw_rewards, draw_seconds, health_columns
from pods_jax.analysis.run_report import SAMPLES, report_html, write_report
from pods_jax.analysis.runs import read_run
from pods_jax.analysis.style import new_figure
from pods_jax.config.schema import default_config
from pods_jax.errors import UserError

ROOT = Path(__file__).parents[2]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = "<script>document.title = 'run'</script></table>&amp; \x00\x1b[31m\ud800 $title ${body} 12 × 7"
VOID = {"meta", "br"}


def rollout(kept, reward):
    return {
        "kept": kept, "advantage": 1.5 if kept else None, "reward": reward, "parts": {"correctness": reward},
        "correct": reward == 1, "reason": "match", "tokens": 3, "truncated": False, "completion": HOSTILE,
        "reads": "12 × 7 = 84",
    }  # fmt: skip


def sample(step):
    return {
        "step": step, "prompt": HOSTILE, "gold": "84", "reads": None, "rewards": [1.0, 0.0, None, 0.5], "kept": [0, 1],
        "rollouts": [rollout(True, 1.0), rollout(True, 0.0), rollout(False, 0.5), rollout(False, None)],
    }  # fmt: skip


def step_metrics(step):
    return {
        "step": step, "reward": 0.5, "selection/group_variance": 0.2, "selection/kept_variance": 0.25,
        "entropy": 1.0 / step, "kl": 0.0, "grad_norm": None if step == 3 else 2.0, "time/sample_s": 2.0,
        "time/update_s": 1.0, "time/step_s": 3.5, "wall_time_s": 3.5 * step, "rollouts/generated": 64.0 * step,
        "rollouts/trained": 16.0 * step, "tokens/generated": 640.0 * step, "tokens/trained": 160.0 * step,
    }  # fmt: skip


def evaluation(step, accuracy):
    return {"step": step, "wall_time_s": 3.5 * step, "accuracy": accuracy, "greedy_accuracy": None, "time/eval_s": 1.0}


def write(folder, **logs):
    config = default_config()
    config.seed, config.data.options, config.training.num_steps = 7, {"digits": 3}, 50
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    for name, records in logs.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


@pytest.fixture
def workdir(tmp_path):
    return write(
        tmp_path / "run",
        metrics=[step_metrics(step) for step in range(1, 41)],
        eval=[evaluation(0, 0.1), evaluation(20, 0.75), evaluation(40, 0.5)],
        samples=[sample(step) for step in range(1, 41, 4)],
    )


class Page(HTMLParser):
    """The tags of a page, which must be closed in order; its text, and whatever it would load."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.loads, self.text = [], [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_it_is_one_well_formed_file(workdir, tmp_path):
    write_report(workdir, tmp_path / "report.html")
    content = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(content)
    assert all(target.startswith("#") for target in page.loads)
    assert not re.search(r"url\((?!#)|@import", content)
    assert "script" not in page.tags
    assert page.tags.count("svg") == 4
    for svg in re.findall(r"<svg.*?</svg>", content, re.DOTALL):
        ElementTree.fromstring(svg)
    assert (workdir / "learning_curve.png").is_file()


def test_it_tells_what_happened(workdir):
    text = Page(report_html(read_run(workdir))).text
    assert "addition: max_variance, n = 64, m = 16, seed 7" in text
    assert "not finished, step 40 of 50" in text
    assert "10.0% at first, 50.0% last, 75.0% at best (step 20)" in text
    assert "2,560 generated, 640 trained on" in text
    assert "data.options.digits3" in text
    assert re.search(r"sample, in all80\.0 s.*eval, in all3\.0 s", text)
    assert text.count("2 of 4 rollouts kept") == SAMPLES
    assert "step 1: 2" in text
    assert "step 37: 2" in text
    assert text.count("kept, advantage +1.50; reward 1, correctness 1; right (match); 3 tokens") == SAMPLES
    assert text.count("dropped; reward not finite, correctness not finite") == SAMPLES
    assert (
        text.count("<script>document.title = 'run'</script></table>&amp; \\x00\\x1b[31m\\ud800 $title") == 5 * SAMPLES
    )


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_a_browser_shows_it(workdir, tmp_path):
    write_report(workdir, tmp_path / "report.html")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"file://{tmp_path}/report.html"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    shown = Page(done.stdout)
    assert shown.tags.count("svg") == 4
    assert shown.tags.count("section") == 7
    assert "<title>addition: max_variance, n = 64, m = 16, seed 7</title>" in done.stdout


@pytest.mark.parametrize(
    ("logs", "figures"), [({}, 1), ({"metrics": [step_metrics(1)]}, 3), ({"samples": [sample(1)]}, 2)]
)
def test_a_young_run_has_what_there_is(tmp_path, logs, figures):
    run = read_run(write(tmp_path / "run", eval=[evaluation(0, 0.1)], **logs))
    assert Page(report_html(run)).tags.count("svg") == figures


def test_a_run_of_an_earlier_version_has_no_samples(tmp_path):
    old = {"step": 1, "prompt": "a", "gold": "b", "completions": ["c"], "rewards": [0.0]}
    assert read_run(write(tmp_path / "run", eval=[evaluation(0, 0.1)], samples=[old])).samples == []


def test_health_leaves_out_what_is_absent_or_0(workdir):
    columns = health_columns(read_run(workdir))
    assert list(columns) == ["entropy (nats a token)", "norm of the gradient"]
    assert np.isnan(columns["norm of the gradient"][2])


def test_a_mean_goes_on_over_a_step_without_a_number(workdir):
    with new_figure(1.5) as figure:
        draw_health(figure, read_run(workdir))
    [_, mean] = figure.axes[1].lines
    assert mean.get_xdata().tolist() == [1, 2, *range(4, 41)]
    assert set(mean.get_ydata()) == {2.0}


def test_kept_and_dropped_rewards_are_counted(workdir):
    with new_figure(2.0) as figure:
        draw_rewards(figure, read_run(workdir))
    dots, shares = figure.axes
    assert [len(c.get_offsets()) for c in dots.collections] == [20, 20]
    assert [text.get_text() for text in shares.get_legend().get_texts()] == ["dropped (10)", "kept (20)"]
    heights = [[bar.get_height() for bar in bars] for bars in shares.containers]
    assert [sum(h) for h in heights] == [1.0, 1.0]
    assert (heights[1][0], heights[1][-1]) == (0.5, 0.5)


def test_the_bar_of_seconds_is_as_long_as_a_step(workdir):
    with new_figure(1.0) as figure:
        draw_seconds(figure, read_run(workdir))
    bars = [bar for container in figure.axes[0].containers for bar in container]
    assert [bar.get_width() for bar in bars] == [2.0, 0.0, 0.0, 1.0, 0.5]
    assert bars[-1].get_x() + bars[-1].get_width() == 3.5


def test_there_must_be_something_to_report(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        write_report(tmp_path, tmp_path / "report.html")
    with pytest.raises(UserError, match="has no evaluation yet"):
        write_report(write(tmp_path / "run"), tmp_path / "report.html")
    with pytest.raises(UserError, match="cannot be written"):
        write_report(write(tmp_path / "run", eval=[evaluation(0, 0.1)]), tmp_path / "no" / "report.html")


def test_the_command(workdir):
    command = [sys.executable, str(ROOT / "experiments" / "report.py"), "--json", "--workdir"]
    done = subprocess.run([*command, str(workdir)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"out": str(workdir / "report.html")}
    failed = subprocess.run([*command, str(workdir / "no")], capture_output=True, text=True)
    assert (failed.returncode, failed.stderr.count("\n")) == (2, 1)
