"""Question + k demonstrations -> prompt text -> token ids.  Host code.

The text is Table 1 of the ICRL paper (arXiv:2603.08068).  It is the same over all stages of the
curriculum but for the demonstrations, of which a stage shows the first k in file order.  Between
the instruction and the question nothing depends on the question, so that the demonstrations are a
prefix that all prompts of a step share.
"""

import dataclasses
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Protocol

# Table 1 of arXiv:2603.08068, word for word: an interface constant.
INSTRUCTION = (
    "Solve the following problem step by step. You must conduct reasoning inside <think>...</think> every "
    "time you get new information. After reasoning, if you find you lack some knowledge, you can call a "
    "search engine by <search> query </search> and it will return results between "
    "<information>...</information>. You can search as many times as you want. Finally, provide the answer "
    "inside <answer>...</answer>."
)
EXAMPLES = "Here are some examples:"
TASK = "Now solve the following problem:"
TAGS = ("think", "search", "information", "answer")


class Tokenizer(Protocol):
    special_tokens: Mapping[str, int]  # text -> id

    def prompt_ids(self, text: str) -> list[int]: ...  # plain text that starts a sequence

    def chat_ids(self, messages: list[dict[str, str]]) -> list[int]: ...  # with the generation prompt


def load_demonstrations(path: str | pathlib.Path, num: int = 0) -> list[str]:
    """Blocks "Example Problem: ...\\nExample Solution: ..." of a text file; blank lines separate them.

    Raises:
        ValueError: the file is not UTF-8, has fewer than `num` blocks, or a block lacks a part, or a
            pair of one of the four tags, or has one unbalanced.
    """
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} (config.prompt.demonstrations) is not valid UTF-8 text: {error.reason}"
        ) from error
    blocks = [block.strip() for block in re.split(r"\n[ \t]*\n", text) if block.strip()]
    for number, block in enumerate(blocks, start=1):
        where = f"demonstration {number} of {path} (config.prompt.demonstrations)"
        if not re.match(r"Example Problem: .*\nExample Solution: ", block):
            raise ValueError(f"{where} is not 'Example Problem: ...', new line, 'Example Solution: ...'")
        for tag in TAGS:
            _check_tag(tag, block, where)
    _check_count(num, len(blocks), str(path))
    return blocks


def _check_tag(tag: str, block: str, where: str) -> None:
    found = "".join(re.findall(rf"</?{tag}>", block)).replace(f"</{tag}>", ")").replace(f"<{tag}>", "(")
    if not found or found != "()" * (len(found) // 2):
        raise ValueError(
            f"{where} has its <{tag}> tags as {found!r}; expected at least one pair, each closed in turn"
        )


def _check_count(asked: int, available: int, what: str) -> None:
    if asked > available:
        raise ValueError(
            f"a stage asks for {asked} demonstrations and {what} has {available}; expected as many in "
            "config.prompt.demonstrations as config.curriculum.stages and config.eval.shots ask for"
        )


def render(question: str, demonstrations: Sequence[str], *, chat: bool) -> str:
    """The prompt's text: instruction, demonstrations, question.

    For a chat template it ends with the question, and the template adds the assistant's opening;
    plain text ends with "Actual Solution:", as the demonstrations' solutions begin.  Without
    demonstrations the line about examples goes too.
    """
    examples = "".join(f"{block}\n\n" for block in demonstrations)
    head = f"{INSTRUCTION}\n" + (f"{EXAMPLES}\n{examples}" if demonstrations else "")
    return f"{head}{TASK}\nActual Problem: {question}" + ("" if chat else "\nActual Solution:")


@dataclasses.dataclass(frozen=True)
class PromptBuilder:
    """Prompts of a run."""

    tokenizer: Tokenizer
    demonstrations: Sequence[str]
    chat: bool  # through the tokenizer's chat template, as one user message

    def text(self, question: str, shots: int) -> str:
        """The rendered prompt with the first `shots` demonstrations, without the chat template.

        Raises:
            ValueError: there are fewer demonstrations.
        """
        _check_count(shots, len(self.demonstrations), "the file")
        return render(question, self.demonstrations[:shots], chat=self.chat)

    def ids(self, question: str, shots: int) -> list[int]:
        """Token ids of the prompt; errors as `text`."""
        text = self.text(question, shots)
        if self.chat:
            # A question cannot close its turn: what looks like a special token is broken up.
            for token in self.tokenizer.special_tokens:
                text = text.replace(token, f"{token[:1]} {token[1:]}")
            return self.tokenizer.chat_ids([{"role": "user", "content": text}])
        return self.tokenizer.prompt_ids(text)
