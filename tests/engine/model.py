"""A tiny Qwen3 with random weights, for real engines in tests: 2 layers, some hundred tokens, less than 1 MB.

Made with what the project's own environment has; the same seed gives the same weights. The tokenizer is trained on the
example prompts, and turns any text into tokens, byte by byte where it must.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType]
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

EXAMPLES = Path(__file__).parents[2] / "examples" / "prompts.jsonl"
CONTEXT_LENGTH = 4096
PAD, TURN, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"  # ids 0, 1, 2
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_VOCABULARY = 512
_WIDTH, _INNER, _LAYERS, _HEADS, _KEY_HEADS, _HEAD = 64, 128, 2, 4, 2, 16
# Wide enough that answers differ and some tokens are likely: an untrained model's are nearly uniform otherwise.
_SPREAD = 0.25


def make_model(folder: Path, seed: int = 0) -> Path:
    """A folder that an engine can load; gives it back."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = _write_tokenizer(folder)
    _write_json(folder / "config.json", _config(vocabulary))
    _write_json(folder / "generation_config.json", _SPECIAL_IDS)
    save_file(_weights(vocabulary, seed), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


_SPECIAL_IDS = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 2}


def _write_tokenizer(folder: Path) -> int:
    """The number of its ids."""
    texts = [json.loads(line)["question"] for line in EXAMPLES.read_text().splitlines()]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=[PAD, TURN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "eos_token": END,
        "model_max_length": CONTEXT_LENGTH,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    _write_json(folder / "tokenizer_config.json", settings)
    return tokenizer.get_vocab_size()


def _config(vocabulary: int) -> dict[str, Any]:
    return _SPECIAL_IDS | {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "torch_dtype": "float32",
        "vocab_size": vocabulary,
        "hidden_size": _WIDTH,
        "intermediate_size": _INNER,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KEY_HEADS,
        "head_dim": _HEAD,
        "max_position_embeddings": CONTEXT_LENGTH,
        "rope_theta": 10_000.0,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
    }


def _weights(vocabulary: int, seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    queries, keys = _HEADS * _HEAD, _KEY_HEADS * _HEAD
    drawn = {"model.embed_tokens": (vocabulary, _WIDTH), "lm_head": (vocabulary, _WIDTH)}
    ones = {"model.norm": _WIDTH}
    for number in range(_LAYERS):
        layer = f"model.layers.{number}."
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            drawn[f"{layer}self_attn.{name}_proj"] = (rows, _WIDTH)
        drawn[f"{layer}self_attn.o_proj"] = (_WIDTH, queries)
        drawn[f"{layer}mlp.gate_proj"] = drawn[f"{layer}mlp.up_proj"] = (_INNER, _WIDTH)
        drawn[f"{layer}mlp.down_proj"] = (_WIDTH, _INNER)
        ones |= {f"{layer}self_attn.q_norm": _HEAD, f"{layer}self_attn.k_norm": _HEAD}
        ones |= {f"{layer}input_layernorm": _WIDTH, f"{layer}post_attention_layernorm": _WIDTH}
    tensors = {name: draw.normal(0, _SPREAD, shape).astype(np.float32) for name, shape in drawn.items()}
    tensors |= {name: np.ones(size, np.float32) for name, size in ones.items()}
    return {f"{name}.weight": tensor for name, tensor in tensors.items()}


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
