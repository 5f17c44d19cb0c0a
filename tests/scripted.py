"""A sampler that plays a script, and records what it was shown; for tests of host code."""

import dataclasses
import random


@dataclasses.dataclass(frozen=True)
class Generation:
    session: int
    ids: list[int]
    logprobs: list[float]
    reason: str


class ScriptedSampler:
    """Generations come from `script(key, turn) -> text`; `order` shuffles which session ends first.

    Attributes:
        seen: (key, context ids, sampled ids) of every generation.
    """

    def __init__(self, prompts, tokenizer, script, order=0):
        self.prompts, self.tokenizer, self.script = prompts, tokenizer, script
        self.random = random.Random(order)
        self.contexts, self.keys, self.turns, self.budgets = {}, {}, {}, {}
        self.ready: list[int] = []
        self.seen = []

    def open(self, question, *, key, temperature, budget):
        session = len(self.keys)
        self.keys[session] = tuple(int(k) for k in key)
        self.contexts[session] = list(self.prompts[question])
        self.turns[session] = 0
        self._wake(session, budget)
        return session

    def _wake(self, session, budget):
        assert budget >= 1
        self.budgets[session] = budget
        self.ready.append(session)

    def extend(self, session, ids, *, budget):
        self.contexts[session] += ids
        self._wake(session, budget)

    def close(self, session):
        del self.contexts[session]

    def is_running(self):
        return bool(self.ready)

    def step(self):
        self.random.shuffle(self.ready)
        count = self.random.randint(1, max(1, len(self.ready)))
        now, self.ready = self.ready[:count], self.ready[count:]
        return [self._generate(session) for session in now]

    def _generate(self, session):
        text = self.script(self.keys[session], self.turns[session])
        self.turns[session] += 1
        ids = self.tokenizer.encode(text)
        reason = "stop" if text.endswith(("</search>", "</answer>")) else "end_of_text"
        if len(ids) > self.budgets[session]:
            ids, reason = ids[: self.budgets[session]], "length"
        self.seen.append((self.keys[session], list(self.contexts[session]), ids))
        self.contexts[session] += ids
        return Generation(session, ids, [-0.1 * (i + 1) for i in range(len(ids))], reason)
