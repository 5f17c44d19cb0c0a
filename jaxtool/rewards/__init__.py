"""Episode -> Reward.  Host code; pure functions of typed segments, text and numbers."""
