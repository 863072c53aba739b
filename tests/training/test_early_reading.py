"""Rollouts that have ended are verified while others are decoded; nothing else changes by it."""

import logging
import threading
import time

import numpy as np
import pytest

from pods_jax.buckets import bucket
from pods_jax.config.schema import from_mapping
from pods_jax.errors import UserError
from pods_jax.groups import Request
from pods_jax.io import read_jsonl
from pods_jax.rewards import RewardPool, Verdict
from pods_jax.rewards.pool import Troubles
from pods_jax.rollout import sampler
from pods_jax.rollout.engine import JitEngine
from pods_jax.rollout.layout import block_tokens
from pods_jax.training import Reporter, train
from pods_jax.training.early_reading import early_reading
from pods_jax.training.experience import orders_of, training_params, verified_groups
from pods_jax.training.prompts import load_data
from pods_jax.training.run import make_run
from pods_jax.training.step import collect_groups, step_keys

LOGS = ("metrics.jsonl", "eval.jsonl", "samples.jsonl")


class AtOnce(JitEngine):
    """Tells of no rollout before all have ended, as an engine of another make may."""

    def generate(self, orders, sampling):
        return super().generate(orders._replace(on_ended=None), sampling)


@pytest.fixture
def turns(tiny):
    """A cache for a group, so that a round of four has four passes."""
    tiny.reward.parts = {"correctness": 1.0, "truncated": -0.5, "digits": 0.25}
    tiny.training.num_steps, tiny.training.eval_every_steps = 2, 0
    tiny.training.checkpoint_every_steps = 1
    tokens = block_tokens(8, bucket(5), 4)
    tiny.rollout.max_cache_bytes_per_device = tokens * 2 * 4 * 8  # keys and values of one head of 8 numbers in float32
    return tiny


def built(config):
    made, problems = from_mapping(config)
    assert not problems
    return made


@pytest.fixture
def make():
    with RewardPool(num_workers=1) as pool:

        def make(config):
            return make_run(built(config), load_data(built(config)), pool, lambda *_: None)

        yield make


@pytest.fixture
def run(make, turns):
    return make(turns)


def threads_of():
    return {thread for thread in threading.enumerate() if thread.name.startswith("Thread")}


def assert_ended(threads):
    """No thread is left but these."""
    end_s = time.monotonic() + 10
    while left := threads_of() - threads:
        assert time.monotonic() < end_s, left
        time.sleep(0.01)


# ---------------------------------------------------------------- the order of events


def recorded(monkeypatch, run, verdicts):
    """Events in order: each pass's begin and end, each verification's; `verdicts` takes its outputs' place."""
    events = []
    decode_pass, real = sampler.decode_pass, run.rewarder.pool.verdicts

    def noted(name, function):
        def call(*args, **options):
            events.append(f"{name} begins")
            result = function(*args, **options)
            events.append(f"{name} ends")
            return result

        return call

    monkeypatch.setattr(sampler, "decode_pass", noted("pass", decode_pass))
    monkeypatch.setattr(run.rewarder.pool, "verdicts", noted("verification", lambda *a, **o: verdicts(real, *a, **o)))
    return events


def test_the_first_that_ended_are_verified_while_others_are_decoded(run, monkeypatch):
    """The verification waits for a pass that begins after it, and the last pass for the verification: in turn, one of
    them would wait in vain."""
    under_way, decoded = threading.Event(), threading.Event()

    def verdicts(real, outputs, *args, **options):
        under_way.set()
        assert decoded.wait(60), "nothing is decoded during verification"
        return real(outputs, *args, **options)

    events = recorded(monkeypatch, run, verdicts)
    decode_pass, begun = sampler.decode_pass, []

    def patient(*args):
        begun.append(args)
        if len(begun) == 2:
            assert under_way.wait(60), "nothing is verified while passes are left"
            decoded.set()
        return decode_pass(*args)

    monkeypatch.setattr(sampler, "decode_pass", patient)
    before = threads_of()
    collect_groups(run, 1)
    assert len(begun) > 2
    last_pass_ends = len(events) - 1 - events[::-1].index("pass ends")
    assert "verification begins" in events[:last_pass_ends]
    assert_ended(before)


def test_in_one_pass_all_are_verified_at_once_and_in_this_thread(make, turns, monkeypatch):
    turns.rollout.max_cache_bytes_per_device = None
    run = make(turns)
    calls = []

    def verdicts(real, outputs, *args, **options):
        calls.append((len(outputs), threading.current_thread()))
        return real(outputs, *args, **options)

    recorded(monkeypatch, run, verdicts)
    collect_groups(run, 1)
    assert calls == [(4 * 8, threading.main_thread())]


def test_every_output_is_verified_once(run, monkeypatch):
    counts = []

    def verdicts(real, outputs, *args, **options):
        counts.append(len(outputs))
        return real(outputs, *args, **options)

    recorded(monkeypatch, run, verdicts)
    collect_groups(run, 1)
    assert len(counts) > 2
    assert sum(counts) == 4 * 8


# ---------------------------------------------------------------- the same results


def untimed(path):
    return [{k: v for k, v in r.items() if "time" not in k} for r in read_jsonl(path)]


def test_a_run_has_the_bits_of_one_whose_engine_delivers_at_once(turns, tmp_path):
    for name, engine in (("early", "jit"), ("at_once", "test_early_reading:AtOnce")):
        turns.rollout.engine = engine
        train(built(turns), tmp_path / name, Reporter(quiet=True))
    for name in LOGS:
        assert untimed(tmp_path / "early" / name) == untimed(tmp_path / "at_once" / name), name
    steps = read_jsonl(tmp_path / "early" / "metrics.jsonl")
    assert {"time/sample_s", "time/verify_s"} <= steps[0].keys()
    assert all(m["reward_std"] > 0 for m in steps)


def test_a_run_goes_on_to_the_same_end(turns, tmp_path):
    train(built(turns), tmp_path / "whole", Reporter(quiet=True))
    with pytest.raises(UserError, match="crash"):
        train(built(turns), tmp_path / "run", Crashes(1))
    train(built(turns), tmp_path / "run", Reporter(quiet=True))
    for name in LOGS:
        assert untimed(tmp_path / "run" / name) == untimed(tmp_path / "whole" / name), name


class Crashes(Reporter):
    def __init__(self, after):
        super().__init__(quiet=True)
        self._left = after

    def step(self, metrics):
        self._left -= 1
        if not self._left:
            raise UserError("crash")


def troubled(real, outputs, golds, *args, **options):
    """No verdicts on the outputs of some prompts."""
    return [Verdict(False, None, "timeout" if gold.startswith("0") else "match") for gold in golds]


def test_troubles_are_told_round_by_round(make, turns, monkeypatch, caplog):
    """Those that end early are the short ones, of which fewer are without a verdict."""
    monkeypatch.setattr(Troubles, "WINDOW", 1)
    found = []
    for turns.rollout.engine in ("jit", "test_early_reading:AtOnce"):
        run = make(turns)
        with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
            recorded(patch, run, troubled)
            run.rewarder.pool._troubles = Troubles()
            groups, _ = collect_groups(run, 1)
        found.append(([g.reasons for g in groups], [r.message for r in caplog.records]))
        caplog.clear()
    assert found[0] == found[1]
    assert len(found[0][1]) == 1
    assert {reason for reasons in found[0][0] for reason in reasons} == {"timeout", "match"}


@pytest.mark.parametrize("index", [0, 1])
def test_a_process_reads_only_its_own_share(run, monkeypatch, index):
    requests = [Request(prompt, count) for prompt, count in zip(run.stream.next(3), (5, 8, 2), strict=True)]
    prompts, counts = [r.prompt for r in requests], [r.count for r in requests]
    run.engine.update_params(0)
    orders = orders_of(requests, step_keys(0, 1)[0])
    sampling = training_params(run.config.rollout)
    completions = run.engine.generate(orders, sampling)
    share = slice(0, 7) if index == 0 else slice(7, 15)
    monkeypatch.setattr("pods_jax.training.experience.own_share", lambda size: share)
    verified = []

    def verdicts(real, outputs, *args, **options):
        verified.extend(outputs)
        return real(outputs, *args, **options)

    recorded(monkeypatch, run, verdicts)
    expected = run.rewarder.verify_share(completions, prompts, counts)
    assert len(verified) == share.stop - share.start
    once = sorted(verified)
    verified.clear()
    with early_reading(run.rewarder, requests) as early:
        run.engine.generate(orders._replace(on_ended=early.submit), sampling)
    known = early.result()
    assert (len(known) == len(once)) == (index == 0)  # the last group is told of by nobody
    assert known
    found = run.rewarder.verify_share(completions, prompts, counts, early.result)
    assert sorted(verified) == once
    for name in ("texts", "correct", "reasons", "answers", "rewards", "formatted", "parts"):
        np.testing.assert_equal(getattr(found, name), getattr(expected, name))


# ---------------------------------------------------------------- errors


def test_a_verifier_that_fails_ends_the_step_and_what_waits(run, monkeypatch):
    calls = []

    def verdicts(real, outputs, *args, **options):
        calls.append(outputs)
        raise UserError("no such gold")

    events = recorded(monkeypatch, run, verdicts)
    before = threads_of()
    with pytest.raises(UserError, match="no such gold"):
        collect_groups(run, 1)
    assert events.count("pass begins") == events.count("pass ends") > 2
    assert_ended(before)


def test_a_decoder_that_fails_drops_what_waits(run, monkeypatch):
    """The verification under way ends by itself."""
    under_way, goes_on, calls, passes = threading.Event(), threading.Event(), [], []

    def verdicts(real, outputs, *args, **options):
        calls.append(outputs)
        under_way.set()
        assert goes_on.wait(60)
        return real(outputs, *args, **options)

    recorded(monkeypatch, run, verdicts)
    decode_pass = sampler.decode_pass

    def failing(*args):
        passes.append(args)
        if len(passes) == 4:
            assert under_way.wait(60)
            raise RuntimeError("out of memory")
        decode_pass(*args)

    monkeypatch.setattr(sampler, "decode_pass", failing)
    before = threads_of()
    with pytest.raises(RuntimeError, match="out of memory"):
        collect_groups(run, 1)
    goes_on.set()
    assert_ended(before)
    assert len(calls) == 1


def test_nothing_told_is_nothing_read(run):
    with early_reading(run.rewarder, []) as early:
        assert early.result() == {}
    requests = [Request(prompt, 2) for prompt in run.stream.next(1)]
    run.engine.update_params(0)
    completions = run.engine.generate(orders_of(requests, step_keys(0, 1)[0]), training_params(run.config.rollout))
    [group] = verified_groups(run.rewarder, requests, completions, 0)
    assert len(group.texts) == 2
