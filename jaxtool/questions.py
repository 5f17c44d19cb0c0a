"""Question file -> seeded, resumable stream of Question.  Host code.

Rows have FlashRAG's schema {"id", "question", "golden_answers", "metadata"}.  All randomness comes
from numpy's PCG64 with an explicit seed, so the order is the same on every machine.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxtool import files
from jaxtool.types import Question


def load(file: str, key: str, *, hops: Sequence[int] = (), types: Sequence[str] = ()) -> list[Question]:
    """Questions of a file, in file order; `uid` is the row's id.

    Args:
        file: path or package data name.
        key: configuration key that named the file, for errors.
        hops, types: keep rows whose `metadata.hops` and `metadata.type` are listed; empty keeps all.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a row without a usable id, `question` or `golden_answers`, a repeated id (all with
            the row number), or no question left.
    """
    path = files.find(file, key)
    questions: list[Question] = []
    rows: dict[str, int] = {}  # id -> the row that has it
    for number, row in files.read_jsonl(path, key):
        question = _question(row, f"row {number} of {path} ({key})")
        if question.uid in rows:
            raise ValueError(
                f"row {number} of {path} ({key}) has id {question.uid!r}, as row {rows[question.uid]} has"
            )
        rows[question.uid] = number
        right_hops = not hops or question.metadata.get("hops") in hops
        if right_hops and (not types or question.metadata.get("type") in types):
            questions.append(question)
    if not questions:
        wanted = {"hops": tuple(hops), "type": tuple(types)}
        kept = "".join(f" with metadata.{name} in {allowed}" for name, allowed in wanted.items() if allowed)
        raise ValueError(f"{path} ({key}) has no question{kept}; expected at least one")
    return questions


def _question(row: dict[str, Any], where: str) -> Question:
    for field in ("id", "question", "golden_answers"):
        if row.get(field) is None:
            raise ValueError(f"{where} has no {field!r}; expected id, question and golden_answers")
    if type(row["id"]) not in (str, int) or not str(row["id"]).strip():
        raise ValueError(f"{where} has id {row['id']!r}; expected a text or a whole number")
    text = row["question"]
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{where} has question {text!r}; expected a text that is not blank")
    metadata = {} if row.get("metadata") is None else row["metadata"]
    if not isinstance(metadata, dict):
        raise ValueError(f"{where} has metadata {metadata!r}; expected an object")
    return Question(str(row["id"]), text.strip(), _answers(row["golden_answers"], where), metadata)


def _answers(gold: Any, where: str) -> tuple[str, ...]:
    """A text, a list of texts, or a text that holds a JSON list of texts."""
    if isinstance(gold, str):
        listed = _json_list(gold)
        gold = [gold] if listed is None else listed
    if not isinstance(gold, list) or not gold:
        raise ValueError(f"{where} has golden_answers {gold!r}; expected a text or a list of at least one")
    for answer in gold:
        if not isinstance(answer, str) or not answer.strip():
            raise ValueError(
                f"{where} has {answer!r} among its golden_answers; expected texts that are not blank"
            )
    return tuple(answer.strip() for answer in gold)


def _json_list(text: str) -> list[str] | None:
    """The list in '["a", "b"]'; None for a text that only looks like one, such as "[sic]"."""
    try:
        value = json.loads(text) if text.lstrip().startswith("[") else None
    except (ValueError, RecursionError):
        return None
    is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return value if is_list else None


def _shuffled(n: int, *seed: int) -> list[int]:
    return np.random.Generator(np.random.PCG64(seed)).permutation(n).tolist()


def select(questions: Sequence[Question], limit: int | None, seed: int) -> list[Question]:
    """A seeded shuffle, then the first `limit` (all, if None or fewer exist)."""
    return [questions[i] for i in _shuffled(len(questions), seed)[:limit]]


def partition(questions: Sequence[Question], weights: Sequence[int]) -> list[list[Question]]:
    """Disjoint consecutive parts of `questions` (shuffled before), in proportion to `weights`.

    Part i ends at floor(n * sum(weights[:i+1]) / sum(weights)), so the parts cover all questions.

    Raises:
        ValueError: a part would be empty.
    """
    n, total = len(questions), sum(weights)
    ends = [n * sum(weights[: i + 1]) // total for i in range(len(weights))]
    parts = [list(questions[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
    if not all(parts):
        raise ValueError(
            f"{n} questions are too few for stages of {list(weights)} steps with their own questions each; "
            "give more questions or set config.curriculum.data to 'shared'"
        )
    return parts


class QuestionStream:
    """Endless questions: every epoch is a permutation seeded by (seed, epoch).

    A take never holds the same question twice.  Where it crosses into the next epoch, questions that
    it already has are put off to the front of the following take; so every epoch still shows every
    question exactly once, and the state is (epoch, position, the few that are put off).
    """

    def __init__(self, questions: Sequence[Question], seed: int):
        if not questions:
            raise ValueError("a question stream needs at least one question; got none")
        self._questions = list(questions)
        self._seed = seed
        self._start_epoch(0)

    def _start_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self._position = 0
        self._deferred: list[int] = []
        self._order = _shuffled(len(self._questions), self._seed, epoch)

    def take(self, n: int) -> list[Question]:
        """The next n questions, all different.

        Raises:
            ValueError: there are fewer than n questions.
        """
        if not 1 <= n <= len(self._questions):
            raise ValueError(
                f"a step asks for {n} different questions of {len(self._questions)}; "
                "expected config.rollout.questions_per_step to be at most the questions of the stage"
            )
        taken: dict[int, None] = {}  # ordered set
        while len(taken) < n:
            index = self._next(taken)
            taken[index] = None
        return [self._questions[i] for i in taken]

    def _next(self, taken: dict[int, None]) -> int:
        # What was put off belongs to this epoch, so it goes before the rest of it and before the next one.
        for index in self._deferred:
            if index not in taken:
                self._deferred.remove(index)
                return index
        if self._position == len(self._order):
            self._start_epoch(self._epoch + 1)
        while self._order[self._position] in taken:
            self._deferred.append(self._order[self._position])
            self._position += 1
        self._position += 1
        return self._order[self._position - 1]

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs to go on; plain JSON data."""
        return {
            "num_questions": len(self._questions),
            "epoch": self._epoch,
            "position": self._position,
            "deferred": list(self._deferred),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on where `state()` was called.

        Raises:
            ValueError: the state was taken over another number of questions.
        """
        if state["num_questions"] != len(self._questions):
            raise ValueError(
                f"the saved data position is for {state['num_questions']} questions, and there are now "
                f"{len(self._questions)}; expected the same config.questions as in the run that is resumed"
            )
        self._start_epoch(state["epoch"])
        self._position = state["position"]
        self._deferred = list(state["deferred"])
