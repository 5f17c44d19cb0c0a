"""Text from outside, made harmless for a terminal.  Host code."""


def harmless(text: str) -> str:
    """`text` with control characters written out (`\\x1b`), line breaks kept."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
