"""rewards/: exact match, F1, format, and their combination."""

import itertools
import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jaxtool.config import RewardConfig
from jaxtool.rewards import combine
from jaxtool.rewards.exact_match import exact_match, lenient_match, lenient_normalise, normalise
from jaxtool.rewards.f1 import f1
from jaxtool.rewards.format import answer, format_score
from jaxtool.types import (
    OBSERVATION,
    POLICY,
    Episode,
    Question,
    Segment,
    ToolCall,
    ToolRecord,
    ToolResult,
    ToolStatus,
)

RECORD = ToolRecord(ToolCall("search", "q"), ToolResult("Doc", ToolStatus.OK))
INFORMATION = "\n<information>Doc 1</information>\n"
THINK, SEARCH, ANSWER = "<think>t</think>", "<search>q</search>", "<answer>a</answer>"


def segments(*texts):
    """Policy and observation in turn; lengths do not matter here."""
    roles = itertools.cycle((POLICY, OBSERVATION))
    return [Segment(role, 1, text) for role, text in zip(roles, texts)]  # noqa: B905


@pytest.mark.parametrize(
    "text, expected",
    [
        ("The  Eiffel\nTower!", "eiffel tower"),
        ("An apple a day", "apple day"),
        ("U.S.-based", "usbased"),
        ("theatre", "theatre"),
        ("The", ""),
        ("Beyoncé’s", "beyoncé’s"),
        ("1914-1918", "19141918"),
        ("1914–1918", "1914–1918"),
        ("a-team", "ateam"),
    ],
)
def test_normalise(text, expected):
    assert normalise(text) == expected


@given(st.text("aAnNtThHeE .-!_’é\n\t0", max_size=20))
def test_normalise_agrees_with_the_rule_word_by_word(text):
    kept = "".join(c for c in text.lower() if c not in string.punctuation)
    # an article is a whole run of word characters
    words = re.findall(r"\w+|[^\w\s]+|\s+", kept)
    expected = " ".join("".join(" " if w in ("a", "an", "the") else w for w in words).split())
    assert normalise(text) == expected


@pytest.mark.parametrize(
    "prediction, answers, exact, lenient",
    [
        ("the Paris.", ("Rome", "paris"), 1, 1),
        ("Paris France", ("Paris",), 0, 0),
        ("Pari", ("Paris",), 0, 0),
        ("", ("Paris",), 0, 0),
        (None, ("Paris",), 0, 0),
        ("", ("The",), 0, 0),
        ("the", ("a",), 0, 0),
        ("1914–1918", ("1914-1918",), 0, 1),
        ("Beyonce\u0301", ("Beyonc\u00e9",), 0, 1),
        ("O’Neil", ("O'Neil",), 0, 1),
        ("“A-Team”", ("a team",), 0, 0),
        ("１２", ("12",), 0, 1),
        ("–", ("–",), 1, 1),
        ("Café", ("Cafe",), 0, 0),
    ],
)
def test_matches(prediction, answers, exact, lenient):
    assert exact_match(prediction, answers) == exact
    assert lenient_match(prediction, answers) == lenient


@given(st.text(max_size=12), st.text(max_size=12))
@example("e.\u0301", "e\u0301")
def test_lenient_never_refuses_what_exact_accepts(prediction, gold):
    assert lenient_match(prediction, [gold]) >= exact_match(prediction, [gold])
    if normalise(prediction) == normalise(gold):
        assert lenient_normalise(prediction) == lenient_normalise(gold)


def slow_f1(prediction, answers):
    """Precision and recall by crossing out words one at a time."""
    best = 0.0
    for gold in answers:
        rest, hits = normalise(gold).split(), 0
        size = len(rest)
        words = normalise(prediction).split()
        for word in words:
            if word in rest:
                rest.remove(word)
                hits += 1
        if hits:
            precision, recall = hits / len(words), hits / size
            best = max(best, 2 * precision * recall / (precision + recall))
    return best


@given(st.text("xyz ", max_size=12), st.lists(st.text("xyz ", max_size=12), max_size=3))
def test_f1_agrees_with_counting_by_hand(prediction, answers):
    assert f1(prediction, answers) == pytest.approx(slow_f1(prediction, answers), abs=1e-12)


def test_f1_worked_rows():
    assert f1("big big cat", ["the big cat"]) == pytest.approx(0.8)  # multiset: one "big" counts
    assert f1("cat", ["dog", "the cat sat"]) == pytest.approx(2 / 3)
    assert f1("The Cat", ["cat"]) == 1.0
    assert f1(None, ["cat"]) == f1("", ["cat"]) == f1("", ["The"]) == f1("x", ["cat"]) == 0.0


@pytest.mark.parametrize(
    "texts, expected",
    [
        ((), None),
        (("none",), None),
        (("<answer> a </answer>",), "a"),
        (("<answer> </answer>",), ""),
        (("<answer>a</answer> <answer> b\n</answer>",), "b"),
        (("<answer>a</answer> <answer>b",), "a"),
        (("<answer>a <answer>b</answer>",), "b"),
        (("<answer>a</answer> b</answer>",), "a"),
        (("<answer>a", INFORMATION, "b</answer>"), None),
        (("<answer>a</answer>", INFORMATION, "more"), "a"),
        (("x", "<answer>tool</answer>"), None),
        (("<answer>a</answer>", "<answer>tool</answer>", "</answer>"), "a"),
        (("<ANSWER>a</ANSWER>",), None),
    ],
)
def test_answer_is_the_last_complete_pair_of_the_policy(texts, expected):
    assert answer(segments(*texts)) == expected


SEARCHED = (THINK + SEARCH, INFORMATION)


@pytest.mark.parametrize(
    "texts, records, score",
    [
        (("",), 0, 0.0),
        ((" \n",), 0, 0.0),
        (("<|im_end|>",), 0, 0.0),
        (("plain text",), 0, 0.25),
        ((ANSWER,), 0, 0.75),
        ((THINK + ANSWER,), 0, 0.9),
        ((*SEARCHED, THINK + ANSWER), 1, 1.0),
        ((*SEARCHED, THINK + "<answer>a"), 1, 0.3),
        ((*SEARCHED, THINK + "<answer> </answer>"), 1, 0.8),
        ((*SEARCHED, "<think>t" + ANSWER), 1, 0.9),
        ((SEARCH, INFORMATION, ANSWER), 1, 0.85),
        ((*SEARCHED, THINK + ANSWER + ANSWER), 1, 1.0),
        # a search that was written and not executed is none
        ((*SEARCHED, THINK + ANSWER), 0, 0.9),
        # a tag left open in one segment is not closed by the next one
        (("<think>t" + SEARCH, INFORMATION, "</think>" + ANSWER), 1, 0.9),
        # tool text has no say
        ((THINK + SEARCH, "<think></answer>", THINK + ANSWER), 1, 1.0),
        (("x" + SEARCH, THINK + ANSWER, "y"), 1, 0.35),
        (("</think></answer>",), 0, 0.0),
    ],
)
def test_format_worked_rows(texts, records, score):
    assert format_score(segments(*texts), [RECORD] * records) == pytest.approx(score, abs=1e-12)


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", " ", "a"]), max_size=12),
    st.booleans(),
)
def test_format_is_a_fraction(pieces, searched):
    assert 0.0 <= format_score(segments("".join(pieces)), [RECORD] * searched) <= 1.0


def test_icrl_weighs_accuracy_and_format():
    def reward(final, alpha=0.8, **kwargs):
        episode = Episode(Question("q", "Who?", ("A", "B")), 0, [], **kwargs)
        episode.roles = [(POLICY, 1), (OBSERVATION, 1), (POLICY, 1)]
        episode.texts = [THINK + SEARCH, "<answer>B</answer>", THINK + final]
        return combine.icrl(episode, RewardConfig(accuracy_weight=alpha))

    right = reward("<answer>the b</answer>", tool_records=[RECORD])
    assert right.total == pytest.approx(1.0) and right.parts == {"accuracy": 1.0, "format": 1.0}
    wrong = reward("<answer>C</answer>", tool_records=[RECORD])
    assert wrong.total == pytest.approx(0.2) and wrong.parts == {"accuracy": 0.0, "format": 1.0}
    assert reward("<answer>B</answer>", alpha=0.5).total == pytest.approx(0.95)
    assert reward("B").total == pytest.approx(0.2 * 0.4)
