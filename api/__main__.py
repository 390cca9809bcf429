"""`python -m api`: serves until SIGTERM or SIGINT. Exit code 0 then, 1 if the port is taken, 2 for a wrong setting."""

import logging
import sys
from collections.abc import Sequence

from pydantic import ValidationError

from api.serve import serve
from api.settings import PREFIX, ApiSettings
from rolloutfleet.settings import explain


def main(argv: Sequence[str]) -> int:
    try:
        settings = ApiSettings(_cli_parse_args=list(argv))  # pyright: ignore[reportCallIssue]  # from the environment
    except ValidationError as error:
        sys.stderr.write(f"api: {explain(error, PREFIX)}\n")
        return 2
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True)
    return serve(settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
