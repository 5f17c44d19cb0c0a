"""Plans -> the sampler's engines, one for each shape.  Boundary."""

from collections.abc import Sequence

from jaxtool import protocol
from jaxtool.assemble import Parts, PromptPlan
from jaxtool.config import RolloutConfig
from jaxtool.sampler import automaton
from jaxtool.sampler.engine import Engine


class Engines:
    """Makes engines of a run, each shape once; the stop automaton is built once."""

    def __init__(self, parts: Parts):
        self._parts = parts
        text = parts.tokenizer
        self._made: dict[tuple[int, ...], Engine] = {}
        self._automaton = automaton.build(protocol.STOP_STRINGS, text.token_bytes(), parts.model.vocab_size)

    def make(
        self, plans: Sequence[PromptPlan], cfg: RolloutConfig, num_questions: int, group_size: int
    ) -> Engine:
        """An engine whose shapes hold all of `plans`."""
        parts = self._parts
        sizes = {
            "slots": min(cfg.slots, num_questions * group_size),
            "num_questions": num_questions,
            "question_size": max(plan.question_size for plan in plans),
            "prefix_size": max(len(plan.prefix_ids) for plan in plans),
            "response_size": cfg.max_response_tokens,
            "chunk_size": max(cfg.max_observation_tokens, len(parts.tokenizer.encode(protocol.RETRY))),
        }
        key = tuple(sizes.values())
        if key not in self._made:
            self._made[key] = Engine(
                parts.model,
                num_tokens=parts.tokenizer.vocab_size,
                automaton=self._automaton,
                end_of_text=sorted(parts.tokenizer.eos_ids),
                **sizes,
            )
        return self._made[key]
