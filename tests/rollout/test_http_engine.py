"""The engine over HTTP, against a server on the loopback that fails in all the ways a test orders."""

import json
import threading
import time

import jax
import numpy as np
import pytest
from made_server import EOS, VOCABULARY, MadeServer, choice, counted

from pods_jax.config.schema import RolloutConfig
from pods_jax.errors import UserError
from pods_jax.models import Decoder, ModelConfig
from pods_jax.parallel import batch_sharding, make_mesh
from pods_jax.rollout.engine import Engine, Orders, SamplingParams, Served
from pods_jax.rollout.http_calls import Unavailable, concurrently
from pods_jax.rollout.http_engine import MARK, HttpEngine, HttpOptions, seed_of

MODEL = Decoder(ModelConfig(VOCABULARY, 8, 16, 1, 1, 1, 8))
PROMPTS = [[5, 6], [7], [2, 9, 4]]
COUNTS = [3, 1, 2]
LIMIT = 6


@pytest.fixture
def server():
    made = MadeServer()
    yield made
    made.stop()


@pytest.fixture
def engine_of(server, tmp_path):
    """(options) -> an engine on the server that gives up soon."""

    def save(folder):
        folder.mkdir(exist_ok=True)
        (folder / "weights").write_text("...")

    def make(**options):
        options = {"backoff_s": 0.01, "attempts": 6, "timeout_s": 20.0} | options
        served = Served(
            model=MODEL, params=lambda: None, save=save, decode=str, eos_ids=(EOS,), pad_id=0,
            absent_ids=(range(30, 32),), config=RolloutConfig(), sharding=batch_sharding(make_mesh()),
        )  # fmt: skip
        return HttpEngine(served, HttpOptions(url=server.url, folder=str(tmp_path / "weights"), **options))

    return make


def generated(engine, counts=COUNTS, **sampling):
    orders = Orders(PROMPTS, counts, [11, 12, 13], [0, 0, 4], jax.random.key(0))
    return engine.generate(orders, SamplingParams(LIMIT, **sampling))


def assert_right(completions, version, counts=COUNTS):
    """The completions are those of `counted` under the weights of a version."""
    for p, n in enumerate(counts):
        for i in range(n):
            length = LIMIT // 2 + 1 if i == 0 else LIMIT
            expected = [2 + (PROMPTS[p][-1] + i + t) % (VOCABULARY - 2) for t in range(length)]
            if i == 0:
                expected[-1] = EOS
            assert completions.tokens[p, i].tolist() == expected + [0] * (LIMIT - length)
            assert completions.lengths[p, i] == length
            assert completions.truncated[p, i] == (i > 0)
            np.testing.assert_array_equal(completions.logprobs[p, i, :length], -(version + 1) / 64)
            assert not completions.logprobs[p, i, length:].any()
        assert not completions.lengths[p, n:].any()


def test_it_is_an_engine(engine_of):
    assert isinstance(engine_of(), Engine)
    assert not engine_of().devices()


def test_tokens_logprobs_and_lengths_are_the_servers(server, engine_of, tmp_path):
    engine = engine_of()
    engine.update_params(3)
    completions = generated(engine, temperature=0.5, top_k=7, top_p=0.9)
    assert_right(completions, 3)
    bodies = {tuple(body["prompt"]): body for body in server.completions()}
    assert [bodies[tuple(prompt)]["n"] for prompt in PROMPTS] == COUNTS
    body = bodies[7,]
    assert body["model"] == str(tmp_path / "weights")
    assert (body["temperature"], body["top_k"], body["top_p"], body["max_tokens"]) == (0.5, 7, 0.9, LIMIT)
    assert (body["min_p"], body["repetition_penalty"], body["presence_penalty"]) == (0, 1, 0)
    assert body["stop_token_ids"] == [EOS]
    assert body["logit_bias"] == {"30": -100, "31": -100}
    assert "seed" not in body
    assert "Authorization" not in server.headers[0]


def test_all_tokens_may_be_drawn_where_top_k_is_off(server, engine_of):
    engine = engine_of()
    engine.update_params(0)
    generated(engine)
    assert {body["top_k"] for body in server.completions()} == {-1}


def test_the_weights_are_handed_over_once_a_version(server, engine_of, tmp_path):
    engine = engine_of(reload=('/collective_rpc {"kwargs": {"weights_path": "{folder}"}, "v": {version}}',))
    for version in (0, 0, 1):
        engine.update_params(version)
        assert_right(generated(engine), version)
    loads = [body for path, body in server.requests if path == "/collective_rpc"]
    assert [body["v"] for body in loads] == [0, 1]
    assert json.loads((tmp_path / "weights" / MARK).read_text()) == {"version": 1}


def test_the_prefix_cache_is_emptied_after_the_weights_came(server, engine_of):
    engine_of().update_params(0)
    assert server.paths() == ["/collective_rpc", "/reset_prefix_cache"]


def test_seeds_are_named_by_step_prompt_and_sample(server, engine_of):
    engine = engine_of(seeded=True)
    engine.update_params(0)
    generated(engine)
    generated(engine)
    seeds = [body["seed"] for body in sorted(server.completions(), key=lambda body: body["prompt"])]
    assert len(set(seeds)) == len(PROMPTS)
    assert seeds[::2] == seeds[1::2]
    assert seed_of(jax.random.key(0), 11, 0) in seeds
    others = {seed_of(jax.random.key(1), 11, 0), seed_of(jax.random.key(0), 12, 0), seed_of(jax.random.key(0), 11, 1)}
    assert len(others - {seed_of(jax.random.key(0), 11, 0)}) == 3
    assert all(0 <= seed < 2**63 for seed in others)


def test_the_key_is_sent_and_stays_out_of_the_options(server, engine_of, monkeypatch):
    monkeypatch.setenv("MADE_KEY", "secret")
    engine_of(key_variable="MADE_KEY").update_params(0)
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer secret"}


def test_a_url_for_openais_clients_serves_too(server, engine_of):
    server.url += "/v1/"
    engine = engine_of()
    engine.update_params(0)
    assert_right(generated(engine), 0)


# ---------------------------------------------------------------- failures that pass


@pytest.mark.parametrize("faults", [["drop"], ["half"], [500], [503, 429, 408], [None, "drop", 500], [500] * 5])
def test_what_fails_is_asked_for_again_and_nothing_else_is(server, engine_of, faults, caplog):
    engine = engine_of(concurrency=1)
    engine.update_params(2)
    server.faults = list(faults)
    assert_right(generated(engine), 2)
    failures = len([fault for fault in faults if fault])
    assert len(server.completions()) == len(PROMPTS) + failures
    assert server.paths().count("/collective_rpc") == 1 + failures  # the server may be a new one
    lines = [record.getMessage() for record in caplog.records if "attempt" in record.getMessage()]
    assert len(lines) == failures
    assert all(server.url in line and "\n" not in line for line in lines)


def test_a_failure_leaves_the_answers_of_other_requests(server, engine_of):
    """The prompts whose answers came, at the same time and later, are not asked for again."""
    engine = engine_of(concurrency=3)
    engine.update_params(0)
    server.complete = lambda made, body: (time.sleep(0.3), counted(made, body))[1]
    server.faults = ["drop"]
    assert_right(generated(engine), 0)
    assert len(server.completions()) == len(PROMPTS) + 1


def test_a_slow_server_is_waited_for(server, engine_of):
    engine = engine_of()
    engine.update_params(0)
    server.faults = [0.5]
    assert_right(generated(engine), 0)
    assert len(server.completions()) == len(PROMPTS)


def test_a_server_that_is_silent_for_too_long_is_asked_again(server, engine_of):
    engine = engine_of(timeout_s=2.0)
    engine.update_params(0)
    server.faults = [6.0]
    assert_right(generated(engine), 0)
    assert len(server.completions()) == len(PROMPTS) + 1


def test_a_server_that_was_started_anew_gets_the_weights_again(server, engine_of):
    """It comes back without them; not one completion is of other weights."""
    engine = engine_of(concurrency=1, backoff_s=0.05)
    engine.update_params(5)
    server.faults = [None, "restart"]
    assert_right(generated(engine), 5)
    assert server.version == 5


def test_a_server_may_be_started_after_the_run(server, engine_of):
    engine = engine_of(backoff_s=0.05, attempts=8)
    server.stop()
    threading.Timer(0.3, server.start, (server.port,)).start()
    engine.update_params(1)
    assert_right(generated(engine), 1)


# ---------------------------------------------------------------- failures that do not


def one_line(error):
    return str(error.value).count("\n") == 0


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ([500] * 9, r"/v1/completions: HTTP 500 .*fault 500.*\(3 attempts\)"),
        (["drop"] * 9, r"/v1/completions: .*closed connection without response \(3 attempts\)"),
        (["half"] * 9, r"/v1/completions: IncompleteRead.*\(3 attempts\)"),
        ([6.0] * 9, r"/v1/completions: nothing came in 2 s \(3 attempts\)"),
    ],
)
def test_the_limit_of_attempts_ends_the_run_in_one_line(server, engine_of, faults, message):
    engine = engine_of(attempts=3, timeout_s=2.0, concurrency=1)
    engine.update_params(0)
    server.faults = list(faults)
    with pytest.raises(UserError, match=message) as error:
        generated(engine)
    assert one_line(error)
    assert len(server.completions()) == 3


def test_the_limit_is_of_failures_in_a_row(server, engine_of):
    engine = engine_of(attempts=2, concurrency=1)
    engine.update_params(0)
    server.faults = [500, None, 500, None, 500, None]
    assert_right(generated(engine), 0)


def test_a_server_that_is_not_there_is_one_line(server, engine_of):
    server.stop()
    with pytest.raises(UserError, match=rf"{server.url}/collective_rpc: .*refused \(2 attempts\)") as error:
        engine_of(attempts=2).update_params(0)
    assert one_line(error)


@pytest.mark.parametrize("status", [400, 401, 404, 422, 307])
def test_a_refusal_is_not_tried_again(server, engine_of, status):
    engine = engine_of(concurrency=1)
    engine.update_params(0)
    server.faults = [status]
    with pytest.raises(UserError, match=f"HTTP {status} .*fault") as error:
        generated(engine)
    assert one_line(error)
    assert len(server.completions()) == 1


def test_a_call_for_the_reload_that_is_not_known_is_one_line(engine_of):
    with pytest.raises(UserError, match="/update_weights_from_disk: HTTP 404"):
        engine_of(reload=('/update_weights_from_disk {"model_path": "{folder}"}',)).update_params(0)


def without_last(choices):
    return choices[:-1]


def longer(choices):
    return [choice(c["index"], [*c["token_ids"], 2], [*c["logprobs"]["token_logprobs"], -1.0]) for c in choices]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (without_last, "0 choices for n = 1|1 choices for n = 2|2 choices for n = 3"),
        (longer, "7 tokens for|1 tokens after"),
    ],
)
def test_wrong_lengths_are_one_line_at_once(server, engine_of, fault, message):
    engine = engine_of(concurrency=1)
    engine.update_params(0)
    server.faults = [fault]
    with pytest.raises(UserError, match=message) as error:
        generated(engine)
    assert one_line(error)
    assert server.url in str(error.value)
    prompts = [tuple(body["prompt"]) for body in server.completions()]
    assert len(set(prompts)) == len(prompts)  # the next may have been sent meanwhile; none was sent again


def test_an_answer_that_is_no_json_is_one_line(server, engine_of, monkeypatch):
    engine = engine_of()
    engine.update_params(0)
    monkeypatch.setattr(engine._server, "post", lambda *_: b"<html>\n</html>")
    with pytest.raises(UserError, match="the answer is no JSON") as error:
        generated(engine)
    assert one_line(error)


def test_a_folder_with_other_files_stays_as_it_is(server, engine_of, tmp_path):
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "model.safetensors").write_text("my only copy")
    with pytest.raises(UserError, match="holds files that no run put there"):
        engine_of().update_params(0)
    assert (tmp_path / "weights" / "model.safetensors").read_text() == "my only copy"
    assert not server.requests


# ---------------------------------------------------------------- many calls at a time


def test_calls_are_made_together_up_to_the_limit():
    together = threading.Barrier(3, timeout=60)
    running = []
    most = []

    def call(item):
        running.append(item)
        together.wait()  # three at a time, or none
        most.append(len(running))
        running.remove(item)
        return b"%d" % item

    assert sorted(concurrently(call, range(6), 3)) == [(i, b"%d" % i) for i in range(6)]
    assert max(most) <= 3


def test_after_a_failure_no_call_is_begun_and_those_under_way_count():
    begun = []
    both = threading.Barrier(2, timeout=60)

    def call(item):
        begun.append(item)
        both.wait()
        if item == 0:
            raise Unavailable("gone")
        time.sleep(0.5)
        return b""

    answers = concurrently(call, range(6), 2)
    assert next(answers) == (1, b"")
    with pytest.raises(Unavailable, match="gone"):
        next(answers)
    assert sorted(begun) == [0, 1]


def test_no_calls_are_no_threads():
    before = threading.active_count()
    assert list(concurrently(lambda item: b"", [], 4)) == []
    assert threading.active_count() == before
