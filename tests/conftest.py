"""Tests run on CPU, with exact float32 products and checked shapes."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
