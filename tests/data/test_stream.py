from pods_jax.data.examples import Example
from pods_jax.data.stream import PromptStream

EXAMPLES = [Example(f"p{i}", f"g{i}", "k") for i in range(7)]
TOKENS = [[i, i + 1] for i in range(7)]


def stream(seed=0):
    return PromptStream(EXAMPLES, TOKENS, seed)


def test_each_epoch_is_a_permutation_in_an_order_of_its_own():
    s = stream()
    first, second = ([p.index for p in s.next(7)] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(7))
    assert first != second
    assert [p.index for p in stream(1).next(7)] != first


def test_a_prompt_carries_its_example_and_a_uid_of_its_own():
    prompts = stream().next(20)
    assert [p.uid for p in prompts] == list(range(20))
    for p in prompts:
        assert (p.text, p.gold, p.tokens) == (f"p{p.index}", f"g{p.index}", (p.index, p.index + 1))


def test_it_goes_on_exactly_where_its_state_was_taken():
    whole = stream().next(30)
    s = stream()
    s.next(11)
    resumed = stream()
    resumed.load_state_dict(s.state_dict())
    assert resumed.next(19) == whole[11:]


def test_batches_may_cross_epochs():
    assert [p.uid for p in stream().next(3) + stream().next(0)] == [0, 1, 2]
    parts = stream()
    assert [p for n in (5, 4, 6) for p in parts.next(n)] == stream().next(15)
