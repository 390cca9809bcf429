"""`python -m tests.helm.generate [--check]`: values.schema.json and the table in README.md, from values.yaml.

With --check nothing is written; exit code 1 and a sentence where a file is not what would be written.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from tests.helm.shapes import POD, WORKER_POD, Schema, shape
from tests.helm.values import CHART, Value, described, read_values

README = CHART / "README.md"
SCHEMA = CHART / "values.schema.json"
_GENERATED = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def main(argv: Sequence[str]) -> int:
    wanted = {SCHEMA: schema_text(), README: readme_text()}
    stale = [path for path, text in wanted.items() if _read(path) != text]
    if "--check" in argv:
        for path in stale:
            print(f"helm/{path.name} is not what values.yaml and the settings say: run `make chart`", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path])
    return 0


def schema_text() -> str:
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart rolloutfleet"}
    return (
        json.dumps(head | _schema_of(read_values(), {value.path: value for value in described()}, ""), indent=1) + "\n"
    )


def readme_text() -> str:
    tables = {"values": _values_table(described()), "pod": _pod_table()}
    return _GENERATED.sub(lambda found: f"{found[1]}{tables[found[2]]}{found[3]}", _read(README))


def _schema_of(values: Mapping[str, Any], known: Mapping[str, Value], above: str) -> Schema:
    properties: dict[str, Schema] = {}
    for name, value in values.items():
        path = f"{above}{name}"
        if path in known:
            properties[name] = {**shape(path, value), "description": known[path].sentence}
        else:
            properties[name] = _schema_of(cast("dict[str, Any]", value), known, f"{path}.")
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _values_table(values: Sequence[Value]) -> str:
    rows = [f"| `{value.path}` | `{_inline(value.default)}` | {_escaped(value.sentence)} |" for value in values]
    return "\n".join(["| value | default | |", "|---|---|---|", *rows, ""])


def _pod_table() -> str:
    rows = [f"| `{name}` | {_escaped(says)} |" for name, (_, says) in (POD | WORKER_POD).items()]
    return "\n".join(["| in `pod` | |", "|---|---|", *rows, ""])


def _inline(default: object) -> str:
    return json.dumps(default)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("{", "`{").replace("}", "}`")


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
