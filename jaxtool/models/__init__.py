"""The decoder and the ways in and out of it."""
