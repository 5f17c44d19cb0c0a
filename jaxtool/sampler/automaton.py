"""Stop strings -> a table that follows them token by token on the device.  Host code.

A stop string may begin and end anywhere inside a token (Qwen's vocabulary fuses `>` with the
newlines after it), so matching is done on bytes: an Aho-Corasick automaton over the stop strings
(Aho & Corasick 1975) is run over the bytes of every vocabulary entry from every state.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class StopAutomaton:
    """State 0 is the start, state `stopped` is final and is never left.

    next_state: [num_states, V] for state and token id, the state after the token.
    """

    next_state: np.ndarray
    stopped: int


def byte_automaton(stop_strings: tuple[str, ...]) -> tuple[np.ndarray, int]:
    """Transitions [num_states, 256] of the matcher and its final state."""
    patterns = [s.encode() for s in stop_strings]
    if not all(patterns):
        raise ValueError(f"stop strings {stop_strings!r}: expected non-empty strings")
    prefixes = sorted({p[:i] for p in patterns for i in range(len(p))} | {b""}, key=lambda b: (len(b), b))
    index = {prefix: i for i, prefix in enumerate(prefixes)}
    stopped = len(prefixes)
    table = np.full((len(prefixes) + 1, 256), stopped, np.int32)
    for prefix, state in index.items():
        for byte in range(256):
            text = prefix + bytes([byte])
            if any(text.endswith(p) for p in patterns):
                continue
            # The longest suffix that is still the beginning of a stop string.
            table[state, byte] = next(index[text[i:]] for i in range(len(text) + 1) if text[i:] in index)
    return table, stopped


def build(stop_strings: tuple[str, ...], token_bytes: list[bytes], vocab_size: int) -> StopAutomaton:
    """The automaton over a vocabulary; entries from len(token_bytes) to vocab_size match nothing."""
    table, stopped = byte_automaton(stop_strings)
    num_states = stopped + 1
    lengths = np.array([len(t) for t in token_bytes])
    longest = int(lengths.max())
    padded = np.zeros((len(token_bytes), longest), np.uint8)
    for i, token in enumerate(token_bytes):
        padded[i, : len(token)] = np.frombuffer(token, np.uint8)
    dtype = np.uint8 if num_states <= 256 else np.int32
    next_state = np.zeros((num_states, vocab_size), dtype)
    for state in range(num_states):
        current = np.full(len(token_bytes), state, np.int32)
        for j in range(longest):
            inside = np.flatnonzero(lengths > j)
            current[inside] = table[current[inside], padded[inside, j]]
        next_state[state, : len(token_bytes)] = current
    return StopAutomaton(next_state, stopped)
