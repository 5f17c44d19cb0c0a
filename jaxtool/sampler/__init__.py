"""Token ids in, token ids and their log-probabilities out: see `engine.py`."""
