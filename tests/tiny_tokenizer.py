"""A byte-level tokenizer without files, for tests of host code; ids are bytes, or two-byte merges."""

MERGES = (b">\n", b"<s", b"</", b"in", b"\n<", b"Do")
CHAT_OPEN, CHAT_CLOSE = 300, 301


class TinyTokenizer:
    """Greedy longest match, so `>` fuses with a newline after it, as in Qwen's vocabulary."""

    special_tokens = {"<|end|>": 302}

    def encode(self, text: str) -> list[int]:
        data, ids, at = text.encode("utf-8"), [], 0
        while at < len(data):
            pair = data[at : at + 2]
            ids.append(256 + MERGES.index(pair) if pair in MERGES else data[at])
            at += 2 if pair in MERGES else 1
        return ids

    def decode(self, ids: list[int]) -> str:
        data = b"".join(MERGES[i - 256] if i >= 256 else bytes([i]) for i in ids)
        return data.decode("utf-8", errors="replace")

    def prompt_ids(self, text: str) -> list[int]:
        return self.encode(text)

    def chat_ids(self, messages: list[dict[str, str]]) -> list[int]:
        (message,) = messages
        assert message["role"] == "user"
        return [CHAT_OPEN, *self.encode(message["content"]), CHAT_CLOSE]
