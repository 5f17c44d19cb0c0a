"""The text protocol of tool use by tags: completion -> action, tool result -> observation.  Host code.

The policy calls with `<search> query </search>` and ends with `<answer> ... </answer>`; what a tool
says comes back as `\\n<information>...</information>\\n` (Table 1 of arXiv:2603.08068).  Tags are
matched as written, in lower case.  Tool text is not trusted: whatever it holds, an observation has
exactly one information block, closed at its end.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Protocol

STOP_STRINGS = ("</search>", "</answer>")

# Put in for a completion without an action: the text of Search-R1's and ICRL's code (generation.py).
RETRY = (
    "\nMy previous action is invalid. If I want to search, I should put the query between <search> and "
    "</search>. If I want to give the final answer, I should put the answer between <answer> and </answer>. "
    "Let me try again.\n"
)

NO_RESULTS = "No results."
OPEN, CLOSE = "\n<information>", "</information>\n"
MAX_ERROR_CHARS = 200

# Far above the characters of any real token, so that a flood of text is cut before it is tokenised.
MAX_CHARS_PER_TOKEN = 64

_CLOSING = re.compile(r"</(search|answer)>")
_PROTOCOL_TAG = re.compile(r"<(?=\s*/?\s*(?:think|search|information|answer)\b)", re.IGNORECASE)


class Encoder(Protocol):
    def encode(self, text: str) -> list[int]: ...  # no special tokens added


@dataclasses.dataclass(frozen=True)
class Search:
    query: str  # stripped, not empty


@dataclasses.dataclass(frozen=True)
class Answer:
    text: str  # stripped; may be empty


@dataclasses.dataclass(frozen=True)
class NoAction:
    """Neither a complete call nor a complete answer, or a call with an empty query."""


Action = Search | Answer | NoAction


def parse(text: str) -> Action:
    """The action of one completion.

    The first complete pair of <search> or <answer> tags decides; text after it, such as the rest of
    the token that completed the stop string, is ignored.  A pair begins at the last opening tag
    before its closing tag: `<search> a <search> b </search>` asks for "b", since the policy began anew.
    A pair around nothing is no call (an empty query is never executed) but is an answer (a blank one).
    """
    for closing in _CLOSING.finditer(text):
        name = closing[1]
        _, opening, content = text[: closing.start()].rpartition(f"<{name}>")
        if not opening:
            continue
        content = content.strip()
        if name == "answer":
            return Answer(content)
        return Search(content) if content else NoAction()
    return NoAction()


def render_documents(documents: Sequence[tuple[str, str]]) -> str:
    """What the policy reads of (title, text) pairs: `Doc 1(Title: "...") ...`, one a line.

    A title carries its own double quotes, as the first line of a corpus passage does.
    """
    if not documents:
        return NO_RESULTS
    return "\n".join(f"Doc {i}(Title: {title}) {text}" for i, (title, text) in enumerate(documents, start=1))


def render_error(tool: str, reason: str) -> str:
    """One short line for a call that failed, told apart from a call that found nothing."""
    line = " ".join(reason.split()) or "unknown reason"
    return f"{tool} failed: {line}"[:MAX_ERROR_CHARS]


def neutralise(text: str) -> str:
    """Tool text in which no protocol tag is left: the "<" of each, in any case or spacing, is "&lt;"."""
    return _PROTOCOL_TAG.sub("&lt;", text)


def observation_text(output: str, tokenizer: Encoder, max_tokens: int) -> str:
    """The information block around a tool's output, in at most `max_tokens` tokens.

    What is too long is cut at the end of the output, between characters and before tokenisation, so
    that the closing tag is always there and no character is split.

    Args:
        output: what the tool said, `ToolResult.output`.
        max_tokens: of the whole block, tags included.

    Raises:
        ValueError: the tags alone are longer than `max_tokens`.
    """
    body = neutralise(output).strip()[: max_tokens * MAX_CHARS_PER_TOKEN]

    def fits(num_chars: int) -> bool:
        return len(tokenizer.encode(OPEN + body[:num_chars] + CLOSE)) <= max_tokens

    if fits(len(body)):
        return OPEN + body + CLOSE
    if not fits(0):
        raise ValueError(
            f"config.rollout.max_observation_tokens is {max_tokens}; expected at least "
            f"{len(tokenizer.encode(OPEN + CLOSE))} tokens, for the information tags"
        )
    low, high = 0, len(body)  # `low` always fits, even where length in tokens is not monotone in characters
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return OPEN + body[:low] + CLOSE


def observation_ids(output: str, tokenizer: Encoder, max_tokens: int) -> list[int]:
    """Token ids of `observation_text`: tokenised once, at most `max_tokens`; errors as there."""
    return tokenizer.encode(observation_text(output, tokenizer, max_tokens))
