"""A wrong setting is one sentence and exit code 2, and no secret in it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from api.settings import PREFIX, ApiSettings
from rolloutfleet.settings import explain

ROOT = Path(__file__).parents[2]


def refused(**given: object) -> str:
    with pytest.raises(ValidationError) as caught:
        ApiSettings.model_validate({"redis_url": "redis://127.0.0.1:1", **given})
    return explain(caught.value, PREFIX)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"port": 70_000}, "ROLLOUTFLEET_API_PORT"),
        ({"stuck_seconds": 0}, "ROLLOUTFLEET_API_STUCK_SECONDS"),
        ({"least_workers": 5, "most_workers": 4}, "least_workers is more than most_workers: lower it"),
        ({"redis_url": "http://x"}, "REDIS_URL"),
        ({"token": "short"}, "ROLLOUTFLEET_API_TOKEN: must be at least 8 ASCII characters"),
    ],
)
def test_a_wrong_setting_is_named_with_the_mend(given: dict[str, object], sentence: str):
    assert sentence in refused(**given)


@pytest.mark.parametrize("given", [{"token": "secret "}, {"redis_url": "http://:secret@host"}])
def test_a_sentence_holds_no_secret(given: dict[str, object]):
    assert "secret" not in refused(**given)


def test_a_wrong_setting_ends_the_process_with_2_and_one_line():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ROLLOUTFLEET_API_PORT": "many"}
    environment.pop("REDIS_URL", None)
    ended = subprocess.run(
        [sys.executable, "-m", "api"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "REDIS_URL is not set" in ended.stderr
