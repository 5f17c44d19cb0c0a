"""The tokenizer of a Hugging Face folder: text <-> token ids.  Host code.

Only byte-level BPE is taken, as every token is then a known string of bytes, which the stop automaton and
the protocol need.  Text from outside never becomes a special token, whatever it looks like.
"""

import json
import os
import pathlib
from typing import Any

# Read on import: it would tell every user without torch that torch is missing, which is not needed here.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

from transformers import PreTrainedTokenizerFast  # noqa: E402

MARKER_FILES = ("tokenizer.json", "tokenizer_config.json")


class Tokenizer:
    """Wraps a fast tokenizer; `load` makes one.

    Attributes:
        vocab_size: ids below it are tokens; the model's vocabulary may be padded beyond.
        special_tokens: text -> id of every special token.
        chat_template: source of the template (Jinja), None without one.
        eos_ids: every id that ends a generation: those of config.json, of generation_config.json and of
            the tokenizer.
    """

    def __init__(self, fast: Any, eos_ids: frozenset[int]):
        self._fast = fast
        self.vocab_size = len(fast)
        self.eos_ids = eos_ids
        self.special_tokens = {t.content: i for i, t in fast.added_tokens_decoder.items() if t.special}
        self.chat_template: str | None = fast.chat_template

    def encode(self, text: str) -> list[int]:
        """Ids of plain text: nothing is added, and what looks like a special token is read as text."""
        return list(self._fast.encode(text, add_special_tokens=False, split_special_tokens=True))

    def decode(self, ids: list[int]) -> str:
        """Text with special tokens kept; bytes that are no UTF-8 become U+FFFD."""
        return self._fast.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def prompt_ids(self, text: str) -> list[int]:
        """Ids of a plain text prompt: a BOS first if the tokenizer adds one by itself."""
        return list(self._fast.encode(text, split_special_tokens=True))

    def chat_ids(self, messages: list[dict[str, str]]) -> list[int]:
        """Ids of messages through the chat template, up to where the assistant begins.

        The template writes its own BOS, so none is added.

        Raises:
            ValueError: the tokenizer has no chat template.
        """
        if not self.chat_template:
            where = self._fast.name_or_path
            raise ValueError(f"{where} has no chat template; add one or set prompt.chat_template to False.")
        ids = self._fast.apply_chat_template(
            messages, tokenize=True, add_generation_prompt=True, return_dict=False
        )
        return list(ids)

    def token_bytes(self) -> list[bytes]:
        """Bytes of every id below vocab_size; an added token is its text, an unused id is empty."""
        pieces = [b""] * self.vocab_size
        byte_of = _byte_characters()
        added = self._fast.added_tokens_decoder
        for token, i in self._fast.get_vocab().items():
            if i in added:
                pieces[i] = added[i].content.encode()
            else:
                pieces[i] = bytes(byte_of[character] for character in token)
        return pieces


def load(folder: str | pathlib.Path) -> Tokenizer:
    """Reads the tokenizer of a Hugging Face folder.

    Raises:
        ValueError: files or an EOS are missing, or the tokenizer is not byte-level BPE.
    """
    folder = pathlib.Path(folder)
    for name in MARKER_FILES:
        if not (folder / name).is_file():
            raise ValueError(f"{folder} holds no {name}, which the tokenizer needs.")
    # not AutoTokenizer: that imports torch where there is one, and may rebuild what tokenizer.json says
    fast = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    state = json.loads(fast.backend_tokenizer.to_str()) if fast.is_fast else {}
    decoder = state.get("decoder") or {}
    if state.get("model", {}).get("type") != "BPE" or decoder.get("type") != "ByteLevel":
        kind = f"{state.get('model', {}).get('type')} with decoder {decoder.get('type')}"
        raise ValueError(f"{folder}: the tokenizer is {kind}; only byte-level BPE is supported.")
    return Tokenizer(fast, _eos_ids(folder, fast))


def _eos_ids(folder: pathlib.Path, fast: Any) -> frozenset[int]:
    ids = {fast.eos_token_id} - {None}
    for name in ("config.json", "generation_config.json"):
        if (folder / name).is_file():
            value = json.loads((folder / name).read_text(encoding="utf-8")).get("eos_token_id")
            ids |= set(value) if isinstance(value, list) else {value} - {None}
    if not ids:
        raise ValueError(
            f"{folder}: no end-of-sequence token in config.json, generation_config.json or tokenizer."
        )
    return frozenset(ids)


def _byte_characters() -> dict[str, int]:
    """Character -> byte of byte-level BPE: printable Latin-1 stands for itself, the rest for 256 and up.

    Radford et al. 2019 (GPT-2), so that no token holds a space or a control character.
    """
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("\xa1"), ord("\xac") + 1),
        *range(ord("\xae"), 256),
    ]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
