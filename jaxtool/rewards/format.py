"""How well an episode keeps to the tag protocol, and the answer it gives.  Host code.

Both read the policy's own segments only, never the prompt and never tool text, and one segment at a
time: a pair of tags does not span a tool's answer.  Tags are matched as written, in lower case.
"""

import re
from collections.abc import Sequence

from jaxtool.types import POLICY, Segment, ToolRecord

NO_ANSWER = 0.5  # no complete answer pair
UNBALANCED_ANSWER = 0.2
NO_THINK = 0.15  # no <think> at all
UNBALANCED_THINK = 0.1
NO_SEARCH = 0.1  # no search was executed
BLANK_ANSWER = 0.2  # the answer pair that counts holds nothing

# End-of-sequence marks are kept in a segment's text; alone they are no text.
_SPECIAL = re.compile(r"<\|[^<>|]*\|>|</s>")


def _policy_texts(segments: Sequence[Segment]) -> list[str]:
    return [segment.text for segment in segments if segment.role == POLICY]


def answer(segments: Sequence[Segment]) -> str | None:
    """Stripped text of the last complete answer pair of the policy; None if there is none.

    A pair begins at the last opening tag before its closing tag, as in `protocol.parse`.
    """
    for text in reversed(_policy_texts(segments)):
        closed = text.split("</answer>")[:-1]  # each piece ends where an answer is closed
        for piece in reversed(closed):
            _, opening, content = piece.rpartition("<answer>")
            if opening:
                return content.strip()
    return None


def _is_balanced(tag: str, texts: Sequence[str]) -> bool:
    return all(text.count(f"<{tag}>") == text.count(f"</{tag}>") for text in texts)


def format_score(segments: Sequence[Segment], tool_records: Sequence[ToolRecord]) -> float:
    """1 minus the penalties above, at least 0; 0 for an episode without text.

    Table 2 of arXiv:2603.08068.  Differs from the authors' code, which scores prompt and response
    together, where the demonstrations' own tags hide what is missing.
    """
    texts = _policy_texts(segments)
    if not any(_SPECIAL.sub("", text).strip() for text in texts):
        return 0.0
    final = answer(segments)
    has_think = any("<think>" in text for text in texts)
    penalties = (
        NO_ANSWER * (final is None)
        + UNBALANCED_ANSWER * (not _is_balanced("answer", texts))
        + NO_THINK * (not has_think)
        + UNBALANCED_THINK * (not _is_balanced("think", texts))
        + NO_SEARCH * (not tool_records)
        + BLANK_ANSWER * (final == "")
    )
    return max(0.0, round(1.0 - penalties, 9))  # rounded: sums of the penalties are exact to two digits
