"""Token ids in, token ids and log-probabilities out.  Boundary: numpy outside, device programs inside.

One `Engine` serves one shape: R slots, Q questions in flight, a prefix of at most P tokens.

    engine.start(params, prefix_ids, prompts)       prefill: prefix once, every question once
    session = engine.open(question, key, ...)       queued until a slot is free
    for generation in engine.step(): ...            decodes until some rows have ended
    engine.extend(session, observation_ids, ...)    runs on after a tool has answered
    engine.close(session)                           gives the slot to the next in the queue

What a session samples depends on its prompt, its key and its observations only: not on its slot, its
neighbours, or when its tool answered.
"""

import dataclasses
import time
from collections import deque
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxtool.models import tree
from jaxtool.models.config import DecoderConfig
from jaxtool.models.decoder import Params
from jaxtool.sampler import decode
from jaxtool.sampler.automaton import StopAutomaton

REASONS = {decode.STOPPED: "stop", decode.END_OF_TEXT: "end_of_text", decode.LENGTH: "length"}
APPEND_ROWS = 8  # sessions that one append program serves
DECODE_STEPS = 64  # tokens between two looks of the host, at most


@dataclasses.dataclass(frozen=True)
class Generation:
    """One finished generation of a session."""

    session: int
    ids: list[int]  # as sampled; the token that completed a stop string, or the end of text, included
    logprobs: list[float]  # nats, full distribution at the sampling temperature
    reason: str  # "stop", "end_of_text" or "length"


@dataclasses.dataclass
class _Session:
    question: int
    key: np.ndarray
    temperature: float
    budget: int
    slot: int | None = None
    ids: list[int] = dataclasses.field(default_factory=list)  # of the running generation
    logprobs: list[float] = dataclasses.field(default_factory=list)
    waiting: list[int] | None = None  # tokens to append before it runs on


def round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


class Engine:
    """A KV-cached sampler with slots; see the module's docstring.

    Args:
        num_tokens: vocabulary entries that have a token; the padded rest is never sampled.
        automaton: of the stop strings.
        end_of_text: ids that end a generation.
        slots: rows that decode together.
        num_questions, question_size: questions in flight and the longest question's own tokens.
        prefix_size: the longest prefix.
        response_size: the longest response; a row's cache holds it and the last prompt token.
        chunk_size: the longest observation.
    """

    def __init__(
        self,
        cfg: DecoderConfig,
        *,
        num_tokens: int,
        automaton: StopAutomaton,
        end_of_text: Sequence[int],
        slots: int,
        num_questions: int,
        question_size: int,
        prefix_size: int,
        response_size: int,
        chunk_size: int,
    ):
        self.cfg = cfg
        self.num_slots = slots
        self.num_questions = num_questions
        self.question_size = round_up(max(question_size, 1), 16)
        self.prefix_size = round_up(max(prefix_size, 1), 32)
        self.cache_size = round_up(response_size + 1, 16)
        longest = round_up(chunk_size + 1, 16)  # the pending token goes first
        self.chunk_sizes = tuple(sorted({round_up(longest // 2, 16), longest}))
        self._stops = decode.Stops(
            jnp.asarray(automaton.next_state), jnp.asarray(list(end_of_text), jnp.int32)
        )
        self._prefill_prefix = jax.jit(lambda params, tokens: tree.prefix_keys_values(params, cfg, tokens))
        self._prefill_questions = jax.jit(self._question_block)
        self._append = jax.jit(
            lambda params, shared, rows, *chunk: decode.append(params, cfg, shared, rows, *chunk),
            donate_argnums=2,
        )
        self._decode = jax.jit(
            lambda params, shared, rows, patience: decode.decode(
                params, cfg, shared, rows, self._stops, num_tokens, DECODE_STEPS, patience
            ),
            donate_argnums=2,
        )
        self._params: Params | None = None
        self._shared: decode.Shared | None = None
        self._rows: decode.Rows | None = None
        self.timings = {"prefill": 0.0, "decode": 0.0}

    @property
    def shapes(self) -> str:
        return (
            f"{self.num_slots} slots, prefix {self.prefix_size}, {self.num_questions} questions of "
            f"{self.question_size}, response {self.cache_size}, chunks {self.chunk_sizes}"
        )

    def _question_block(self, params, prefix, prefix_length, tokens):
        kept = tree.question_keys_values(params, self.cfg, prefix, prefix_length, tokens)
        lay = lambda a: a.swapaxes(1, 2).reshape(a.shape[0], a.shape[2], -1, a.shape[4])  # [L, K, Q U, E]
        return tree.KeysValues(lay(kept.k), lay(kept.v))

    def start(self, params: Params, prefix_ids: Sequence[int], prompts: Sequence[Sequence[int]]) -> None:
        """Prefills; afterwards sessions may be opened on `prompts` by index.

        Args:
            prefix_ids: the beginning that all prompts share; every prompt has at least one more token.
        """
        started = time.perf_counter()
        if len(prompts) > self.num_questions or len(prefix_ids) > self.prefix_size:
            raise ValueError(
                f"{len(prompts)} prompts with a prefix of {len(prefix_ids)} tokens: this engine takes "
                f"{self.num_questions} with a prefix of {self.prefix_size}"
            )
        self._params = params
        self._prompts = [list(p) for p in prompts]
        n = len(prefix_ids)
        tokens = np.zeros(self.prefix_size, np.int32)
        tokens[:n] = prefix_ids
        questions = np.zeros((self.num_questions, self.question_size), np.int32)
        question_of = np.full(questions.shape, -1, np.int32)
        for i, prompt in enumerate(self._prompts):
            own = prompt[n:-1]
            if prompt[:n] != list(prefix_ids) or len(prompt) <= n or len(own) > self.question_size:
                raise ValueError(
                    f"prompt {i} of {len(prompt)} tokens: expected the prefix of {n} tokens and 1 to "
                    f"{self.question_size + 1} more"
                )
            questions[i, : len(own)] = own
            question_of[i, : len(own)] = i
        prefix = self._prefill_prefix(params, tokens)
        self.prefix_ids = tokens
        length = np.int32(n)
        block = self._prefill_questions(params, prefix, length, questions)
        self._shared = decode.Shared(prefix, length, block, question_of.reshape(-1))
        if self._rows is None:
            self._rows = decode.empty_rows(self.cfg, self.num_slots, self.cache_size, prefix.k.dtype)
        self._state = {
            name: np.array(getattr(self._rows, name))
            for name in decode.Rows._fields
            if name not in ("k", "v")
        }
        self._state["status"][:] = decode.IDLE
        self._sessions: dict[int, _Session] = {}
        self._queue: deque[int] = deque()
        self._free = list(range(self.num_slots - 1, -1, -1))
        self._next = 0
        jax.block_until_ready(block)
        self.timings["prefill"] += time.perf_counter() - started

    def release(self) -> None:
        """Gives the memory of caches and prompts back; `start` makes them anew."""
        self._params = self._shared = self._rows = None

    @property
    def prefix(self) -> tree.KeysValues:
        """Keys and values of the prefix under the parameters given to `start`."""
        return self._shared.prefix

    def open(self, question: int, *, key: np.ndarray, temperature: float, budget: int) -> int:
        """A session on prompt `question`; its first generation samples at most `budget` tokens."""
        session = self._next
        self._next += 1
        self._sessions[session] = _Session(question, key, temperature, budget)
        self._queue.append(session)
        return session

    def extend(self, session: int, ids: Sequence[int], *, budget: int) -> None:
        """Appends tool text to a session whose generation has ended, and lets it sample again."""
        held = self._sessions[session]
        if not 1 <= len(ids) < self.chunk_sizes[-1]:
            raise ValueError(f"{len(ids)} tokens to append: expected 1 to {self.chunk_sizes[-1] - 1}")
        held.waiting, held.budget = list(ids), budget

    def close(self, session: int) -> None:
        held = self._sessions.pop(session)
        self._state["status"][held.slot] = decode.IDLE
        self._free.append(held.slot)

    def step(self) -> list[Generation]:
        """Fills free slots, appends what waits, decodes; the generations that ended, in session order."""
        self._admit()
        started = time.perf_counter()
        self._append_waiting()
        appended = time.perf_counter()
        self.timings["prefill"] += appended - started
        running = [s for s, held in self._sessions.items() if self._is_running(held)]
        if not running:
            return []
        # An append costs as much as a dozen steps of decoding, for one row or for eight.
        patience = np.int32(max(1, len(running) // 2))
        rows, tokens, logprobs, steps = self._decode(
            self._params, self._shared, self._device_rows(), patience
        )
        self._keep(rows)
        steps = int(steps)
        tokens, logprobs = jax.device_get((tokens, logprobs))  # whole: a slice would be a program a length
        self.timings["decode"] += time.perf_counter() - appended
        ended = []
        for session in running:
            held = self._sessions[session]
            sampled = held.budget - int(self._state["budget"][held.slot])
            held.budget -= sampled
            held.ids += tokens[:sampled, held.slot].tolist()
            held.logprobs += logprobs[:sampled, held.slot].tolist()
            if not self._is_running(held):
                reason = REASONS[int(self._state["status"][held.slot])]
                ended.append(Generation(session, held.ids, held.logprobs, reason))
                held.ids, held.logprobs = [], []
        return ended

    def is_running(self) -> bool:
        """Whether a call of `step` would decode or append something."""
        return bool(self._queue and self._free) or any(
            held.waiting is not None or self._is_running(held) for held in self._sessions.values()
        )

    def _is_running(self, held: _Session) -> bool:
        return held.slot is not None and self._state["status"][held.slot] == decode.RUNNING

    def _admit(self) -> None:
        while self._queue and self._free:
            held = self._sessions[self._queue.popleft()]
            held.slot = slot = self._free.pop()
            prompt = self._prompts[held.question]
            self._set(
                slot, question=held.question, start=len(prompt) - 1, length=0, pending=prompt[-1],
                status=decode.RUNNING, stop_state=0, budget=held.budget, keys=held.key,
                temperature=held.temperature,
            )  # fmt: skip

    def _append_waiting(self) -> None:
        waiting = [held for held in self._sessions.values() if held.waiting is not None]
        sizes = [next(c for c in self.chunk_sizes if len(held.waiting) < c) for held in waiting]
        # A chunk's size follows from the session's own observation, never from its neighbours'.
        for size in self.chunk_sizes:
            here = [held for held, own in zip(waiting, sizes) if own == size]
            for i in range(0, len(here), APPEND_ROWS):
                self._append_chunk(here[i : i + APPEND_ROWS], size)

    def _append_chunk(self, sessions: list[_Session], size: int) -> None:
        which = np.full(APPEND_ROWS, self.num_slots, np.int32)
        tokens = np.zeros((APPEND_ROWS, size), np.int32)
        counts = np.zeros(APPEND_ROWS, np.int32)
        for i, held in enumerate(sessions):
            chunk = [int(self._state["pending"][held.slot]), *held.waiting[:-1]]
            which[i], counts[i] = held.slot, len(chunk)
            tokens[i, : len(chunk)] = chunk
        self._keep(self._append(self._params, self._shared, self._device_rows(), which, tokens, counts))
        for held in sessions:
            self._set(
                held.slot, pending=held.waiting[-1], status=decode.RUNNING, stop_state=0, budget=held.budget
            )
            held.waiting = None

    def _set(self, slot: int, **values) -> None:
        for name, value in values.items():
            self._state[name][slot] = value

    def _device_rows(self) -> decode.Rows:
        return decode.Rows(self._rows.k, self._rows.v, **self._state)

    def _keep(self, rows: decode.Rows) -> None:
        self._rows = rows
        small = {name: getattr(rows, name) for name in self._state}
        self._state = {name: np.array(value) for name, value in jax.device_get(small).items()}
