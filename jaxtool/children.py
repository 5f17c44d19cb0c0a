"""The environment of child processes.  Host code.

A child gets what it needs to run and reach the network, and no secret of ours: names that hold one are
left out.
"""

import os
import re

_SECRET = re.compile(r"key|token|secret|pass|credential|_pat$|database_url", re.IGNORECASE)


def environment() -> dict[str, str]:
    """Our environment without the variables whose name says that they hold a secret."""
    return {name: value for name, value in os.environ.items() if not _SECRET.search(name)}
