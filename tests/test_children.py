"""Child processes get no secrets."""

import subprocess
import sys

from jaxtool import children


def test_secrets_stay_here_and_the_rest_goes_on(monkeypatch):
    secrets = ("SERPER_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "SMTP_PASS", "GH_PAT")
    for name in secrets:
        monkeypatch.setenv(name, "hidden")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    program = "import os; print(sorted(os.environ)); print(os.environ['HTTPS_PROXY'])"
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env=children.environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "http://proxy:1" in shown and "PATH" in shown
    assert not any(name in shown for name in secrets)
