"""`python -m tests.engine [ARGUMENT ...]`: tests against the real SGLang on this machine's CPU. Arguments go to pytest.

`--prepare` only makes the environment; where that can't be done it says why in one line, with exit code 1.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.engine.environment import EnvironmentFailed, prepare
from tests.engine.model import make_model
from tests.engine.servers import Servers, ServersFailed

ROOT = Path(__file__).parents[2]
CONTRACT = (
    "tests/deploy/test_simulator_contract.py",
    "tests/deploy/test_simulator_contract_tokens.py",
    "tests/deploy/test_simulator_contract_engines.py",
)
FLEET = "tests/engine"


def main(arguments: Sequence[str]) -> int:
    if list(arguments) == ["--prepare"]:
        return _prepare()
    try:
        return run(prepare(), arguments)
    except (EnvironmentFailed, ServersFailed) as error:
        print(f"test-engine: {error}", file=sys.stderr)
        return 1


def _prepare() -> int:
    try:
        prepare()
    except EnvironmentFailed as error:
        print(" ".join(str(error).split()))
        return 1
    return 0


def run(python: Path, arguments: Sequence[str]) -> int:
    """pytest's exit code. Errors: ServersFailed."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rolloutfleet-engine-") as folder:
        model = make_model(Path(folder) / "model")
        with Servers(python, model, Path(folder)) as servers:
            two = [servers.start(), servers.start()]
            servers.wait(*two)
            print(f"two servers are ready after {time.monotonic() - began:.0f} s", flush=True)
            variables = {
                "ROLLOUTFLEET_CONTRACT_URL": two[0].url,
                "ROLLOUTFLEET_ENGINE_URLS": " ".join(server.url for server in two),
                "ROLLOUTFLEET_ENGINE_PYTHON": str(python),
            }
            command = [sys.executable, "-m", "pytest", *CONTRACT, FLEET, *arguments]
            code = subprocess.run(command, cwd=ROOT, env=os.environ | variables).returncode
            if code:
                print("\n".join(f"--- {server.url}, the end of its log\n{server.tail()}" for server in two))
            return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
