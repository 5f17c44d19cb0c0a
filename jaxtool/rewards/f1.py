"""Token F1 of an answer with the best gold answer.  Host code."""

from collections import Counter
from collections.abc import Sequence

from jaxtool.rewards.exact_match import normalise


def f1(prediction: str | None, answers: Sequence[str]) -> float:
    """Best harmonic mean of precision and recall over the answers, in [0, 1].

    Tokens are the words of the normalised texts and overlap as multisets, as in SQuAD (Rajpurkar et
    al. 2016, arXiv:1606.05250) and ZeroSearch's reward (section 3 of arXiv:2505.04588).
    """
    if prediction is None:
        return 0.0
    return max(
        (_f1(normalise(prediction).split(), normalise(answer).split()) for answer in answers), default=0.0
    )


def _f1(predicted: list[str], gold: list[str]) -> float:
    overlap = (Counter(predicted) & Counter(gold)).total()
    # 2 P R / (P + R) with P = overlap / |predicted| and R = overlap / |gold|
    return 2.0 * overlap / (len(predicted) + len(gold)) if overlap else 0.0
