"""Parts of a reward -> the scalar that is learned from.  Host code."""

from jaxtool.config import RewardConfig
from jaxtool.rewards.exact_match import exact_match
from jaxtool.rewards.format import answer, format_score
from jaxtool.types import Episode, Reward


def icrl(episode: Episode, cfg: RewardConfig) -> Reward:
    """alpha * accuracy + (1 - alpha) * format, Eq. (7) of arXiv:2603.08068; both parts in [0, 1]."""
    segments = episode.segments
    accuracy = exact_match(answer(segments), episode.question.answers)
    form = format_score(segments, episode.tool_records)
    alpha = cfg.accuracy_weight
    return Reward(alpha * accuracy + (1.0 - alpha) * form, {"accuracy": accuracy, "format": form})
