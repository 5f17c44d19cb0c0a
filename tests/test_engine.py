"""The sampler against its two oracles: alone in the same programs (bitwise), and full recomputation."""

import jax.numpy as jnp
import numpy as np
import pytest
from test_tree import MODELS, flat_context, random_params

from jaxtool.models import decoder
from jaxtool.rollout import episode_key
from jaxtool.sampler import automaton, sampling
from jaxtool.sampler.engine import Engine

CFG = MODELS["qwen3"]
PARAMS = random_params(CFG, seed=1)
PREFIX = list(np.random.default_rng(0).integers(0, 90, 13))
PROMPTS = [PREFIX + list(np.random.default_rng(i + 1).integers(0, 90, n)) for i, n in enumerate((4, 1, 6))]
TOKENS = [bytes([i]) for i in range(90)]
END_OF_TEXT = 7
NUM_TOKENS = 90  # of 97 rows


def make_engine(slots=4):
    return Engine(
        CFG, num_tokens=NUM_TOKENS, automaton=automaton.build(("\x01", "\x02\x03"), TOKENS, CFG.vocab_size),
        end_of_text=[END_OF_TEXT], slots=slots, num_questions=3, question_size=6, prefix_size=13,
        response_size=60, chunk_size=20,
    )  # fmt: skip


def observation(question, sample, turn):
    """A function of the episode alone, as a tool's answer is."""
    rng = np.random.default_rng((question, sample, turn))
    return rng.integers(10, 80, rng.integers(1, 19)).tolist()


def play(engine, wanted, *, turns=3, budget=9, hold_back=()):
    """Plays episodes (question, sample); `hold_back` get their observations late.  -> {(q, s): (ids, logprobs)}"""
    engine.start(PARAMS, PREFIX, PROMPTS)
    names, tokens, done_turns, late = {}, {}, {}, []
    for question, sample in wanted:
        session = engine.open(
            question, key=episode_key(0, 1, f"q{question}", sample), temperature=0.8, budget=budget
        )
        names[session] = question, sample
        tokens[question, sample] = ([], [], [])
        done_turns[session] = 0
    while done_turns:
        generations = engine.step()
        for generation in generations:
            name = names[generation.session]
            ids, logprobs, mask = tokens[name]
            ids += generation.ids
            logprobs += generation.logprobs
            mask += [True] * len(generation.ids)
            done_turns[generation.session] += 1
            if done_turns[generation.session] == turns:
                engine.close(generation.session)
                del done_turns[generation.session]
            elif name in hold_back and len(done_turns) > len(hold_back):
                late.append(generation.session)
            else:
                extend(engine, names, tokens, done_turns, generation.session, budget)
        if not engine.is_running():
            for session in late:
                extend(engine, names, tokens, done_turns, session, budget)
            late = []
    return {name: (ids, logprobs, mask) for name, (ids, logprobs, mask) in tokens.items()}


def extend(engine, names, tokens, done_turns, session, budget):
    new = observation(*names[session], done_turns[session])
    ids, _, mask = tokens[names[session]]
    ids += new
    mask += [False] * len(new)
    engine.extend(session, new, budget=budget)


ALL = [(q, s) for q in range(3) for s in range(4)]


@pytest.fixture(scope="module")
def together():
    return play(make_engine(), ALL)


def test_samples_of_a_group_differ_and_generations_end_as_they_should(together):
    assert len({tuple(ids) for ids, _, _ in together.values()}) == len(ALL)
    for ids, logprobs, mask in together.values():
        assert sum(mask) == len(logprobs) and len(mask) == len(ids)
        sampled = np.array(ids)[mask]
        assert sampled.max() < NUM_TOKENS


@pytest.mark.parametrize("name", [(0, 0), (1, 2), (2, 3)])
def test_alone_in_the_same_programs_is_bitwise_the_same(together, name):
    assert play(make_engine(), [name])[name] == together[name]


def test_order_late_tools_and_more_sessions_than_slots_change_nothing(together):
    other = play(make_engine(), ALL[::-1], hold_back=((0, 1), (2, 2), (1, 3)))
    assert other == together


def test_full_recomputation_agrees(together):
    """Every sampled token again from a flat forward pass over its whole context, no cache."""
    same = total = 0
    for (question, sample), (ids, logprobs, mask) in together.items():
        hidden = flat_context(PARAMS, CFG, PROMPTS[question] + ids)
        places = np.flatnonzero(mask)
        rows = hidden[len(PROMPTS[question]) - 1 + places]
        keys = np.broadcast_to(episode_key(0, 1, f"q{question}", sample), (len(places), 2))
        tokens, wanted = sampling.sample(
            decoder.logits(PARAMS, rows), keys, places, jnp.full(len(places), 0.8), NUM_TOKENS
        )
        agree = np.asarray(tokens) == np.array(ids)[places]
        same, total = same + agree.sum(), total + len(agree)
        gap = np.abs(np.asarray(wanted) - logprobs)[agree]
        assert np.all(gap <= 1e-4 * np.maximum(1, np.abs(logprobs)[agree])), gap.max()
    assert same >= 0.99 * total


def test_stops_end_of_text_and_budget():
    """Each generation ends at the first stop, end of text, or with its budget; the last token says which."""
    engine = make_engine()
    engine.start(PARAMS, PREFIX, PROMPTS)
    for sample in range(60):
        engine.open(0, key=episode_key(3, 1, "x", sample), temperature=1.5, budget=12)
    reasons = set()
    while engine.is_running():
        for generation in engine.step():
            text = bytes(generation.ids)
            stops = [i for i in range(len(text)) if text[i] == 1 or text[i - 1 : i + 1] == b"\x02\x03"]
            ends = [i for i, token in enumerate(generation.ids) if token == END_OF_TEXT]
            first = min(stops + ends, default=None)
            if first is None:
                assert generation.reason == "length" and len(generation.ids) == 12
            else:
                assert first == len(generation.ids) - 1
                assert generation.reason == ("stop" if first in stops else "end_of_text")
            reasons.add(generation.reason)
            engine.close(generation.session)
    assert reasons == {"stop", "end_of_text", "length"}


def test_prompts_that_do_not_fit_are_refused():
    engine = make_engine()
    with pytest.raises(ValueError, match="prompt 1 of 14 tokens: expected the prefix of 13 tokens"):
        engine.start(PARAMS, PREFIX, [PROMPTS[0], [89] + PROMPTS[1][1:]])
    with pytest.raises(ValueError, match="4 prompts with a prefix of 13 tokens: this engine takes 3"):
        engine.start(PARAMS, PREFIX, PROMPTS + PROMPTS[:1])


def test_few_programs(together):
    """Other questions, keys and observations compile nothing new."""
    from jaxtool import compilations

    engine = make_engine()
    play(engine, ALL)
    before = compilations.count()
    play(engine, [(2, 7), (0, 9), (1, 8)], turns=2, budget=5)
    assert compilations.count() == before
