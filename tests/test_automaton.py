"""The stop automaton finds a stop string wherever token boundaries fall."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtool.sampler import automaton

STOPS = ("</search>", "</answer>")
PIECES = [
    "<",
    "/",
    "</",
    "s",
    "sea",
    "rch",
    "search",
    ">",
    ">\n",
    "answer",
    "</sea",
    "rch>",
    "x",
    " ",
    "</search>y",
    "é",
]
TOKENS = [piece.encode() for piece in PIECES]


def run(machine: automaton.StopAutomaton, ids) -> int | None:
    """Index of the token that completed a stop, None if none did."""
    state = 0
    for i, token in enumerate(ids):
        state = int(machine.next_state[state, token])
        if state == machine.stopped:
            return i
    return None


def expected(ids) -> int | None:
    """The same from the text alone: the first token after which a stop string stands in it."""
    text = b""
    for i, token in enumerate(ids):
        text += TOKENS[token]
        if any(stop.encode() in text for stop in STOPS):
            return i
    return None


@given(st.lists(st.integers(0, len(TOKENS) - 1), max_size=12))
@settings(max_examples=400, deadline=None)
def test_agrees_with_searching_the_text(ids):
    assert run(automaton.build(STOPS, TOKENS, len(TOKENS)), ids) == expected(ids)


def test_every_way_to_cut_a_stop_string():
    """All 2^8 segmentations of </search> into tokens stop at the last one."""
    text = b"</search>"
    for cuts in itertools.product((False, True), repeat=len(text) - 1):
        places = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(text)]
        pieces = [text[a:b] for a, b in itertools.pairwise(places)]
        machine = automaton.build(STOPS, [*pieces, b"x"], len(pieces) + 1)
        assert run(machine, range(len(pieces))) == len(pieces) - 1


def test_overlapping_beginnings():
    assert run(automaton.build(("aab",), [b"a", b"b"], 2), [0, 0, 0, 1]) == 3


def test_padded_vocabulary_matches_nothing():
    machine = automaton.build(("ab",), [b"a", b"b"], 5)
    assert machine.next_state.shape == (3, 5)
    assert np.all(machine.next_state[:2, 2:] == 0)
