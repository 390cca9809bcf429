"""What the model's own config.json says, where the engine does not: SGLang 0.5.23 tells neither vocabulary nor context.

Invariant: nothing is downloaded; a config that isn't on this machine is just not known.
"""

import json
from pathlib import Path
from typing import Any, cast

CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"


def read_vocab_size(model_path: str) -> int | None:
    """Number of token ids of a model: a folder, or a name whose config lies in the Hugging Face cache."""
    config = _read(_find(model_path))
    text = config.get("text_config")
    nested = cast(dict[str, Any], text) if isinstance(text, dict) else {}
    size = config.get("vocab_size") or nested.get("vocab_size")  # models with vision keep it one level down
    return size if isinstance(size, int) and size > 0 else None


def read_end_ids(model_path: str) -> list[int]:
    """The ids that end an answer, in order: of the model's generation config, else of its config; none: not known."""
    for name in (GENERATION_CONFIG, CONFIG):
        found = _read(_find(model_path, name)).get("eos_token_id")
        ids = cast(list[Any], found) if isinstance(found, list) else [found]
        if ids and all(type(one) is int for one in ids):
            return sorted(cast(list[int], ids))
    return []


def _find(model_path: str, name: str = CONFIG) -> Path | None:
    local = Path(model_path) / name
    if local.is_file():
        return local
    from huggingface_hub import try_to_load_from_cache  # comes with transformers; slow to import, and rarely needed

    try:
        cached = try_to_load_from_cache(model_path, name)
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
