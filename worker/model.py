"""What the model's own config.json says, where the engine does not: SGLang 0.5.23 tells neither vocabulary nor context.

Invariant: nothing is downloaded; a config that isn't on this machine is just not known.
"""

import json
from pathlib import Path
from typing import Any, cast

CONFIG = "config.json"


def read_vocab_size(model_path: str) -> int | None:
    """Number of token ids of a model: a folder, or a name whose config lies in the Hugging Face cache."""
    config = _read(_find(model_path))
    text = config.get("text_config")
    nested = cast(dict[str, Any], text) if isinstance(text, dict) else {}
    size = config.get("vocab_size") or nested.get("vocab_size")  # models with vision keep it one level down
    return size if isinstance(size, int) and size > 0 else None


def _find(model_path: str) -> Path | None:
    local = Path(model_path) / CONFIG
    if local.is_file():
        return local
    from huggingface_hub import try_to_load_from_cache  # comes with transformers; slow to import, and rarely needed

    try:
        cached = try_to_load_from_cache(model_path, CONFIG)
    except ValueError:  # no name of a model
        return None
    return Path(cached) if isinstance(cached, str) else None


def _read(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        config: Any = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return cast(dict[str, Any], config) if isinstance(config, dict) else {}
