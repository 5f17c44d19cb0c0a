"""Exact match of an answer with any gold answer.  Host code.

The normalisation is SQuAD's (Rajpurkar et al. 2016, arXiv:1606.05250), the one of the papers'
tables.  It leaves dashes, quotes and accents of Unicode alone; `lenient_match` is a second metric
beside it that does not, and never takes its place.
"""

import re
import string
import unicodedata
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58"
_QUOTES = "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2032\u00ab\u00bb\u2039\u203a"
_ASCII = str.maketrans(dict.fromkeys(_DASHES, "-") | dict.fromkeys(_QUOTES, "'"))


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation, then without articles, with single spaces."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def lenient_normalise(text: str) -> str:
    """As `normalise`, and compatibility forms (NFKC), dashes and quotes are one."""
    return normalise(unicodedata.normalize("NFKC", normalise(text)).translate(_ASCII))


def exact_match(prediction: str | None, answers: Sequence[str]) -> float:
    """1.0 if the normalised prediction equals a normalised answer, else 0.0.

    An answer with nothing left after normalisation ("The") matches nothing, so that an empty
    prediction is never right; SQuAD's own script would count it.
    """
    if prediction is None:
        return 0.0
    return float(normalise(prediction) in {normalise(answer) for answer in answers} - {""})


def lenient_match(prediction: str | None, answers: Sequence[str]) -> float:
    """1.0 if `exact_match` is, or if the leniently normalised texts are equal, else 0.0."""
    if prediction is None:
        return 0.0
    is_same = lenient_normalise(prediction) in {lenient_normalise(answer) for answer in answers} - {""}
    return max(exact_match(prediction, answers), float(is_same))
