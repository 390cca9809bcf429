"""Runs in the environment of the real engine: what transformers says to tokens that an engine made.

In come JSON lines {"model": path, "prompt": ids, "ids": ids, "temperature": t}, out goes a line of log-probabilities
for each: of the ids after the prompt, in nats, of the distribution at that temperature.
"""

import importlib
import json
import sys
from functools import cache
from typing import Any

torch: Any = importlib.import_module("torch")
transformers: Any = importlib.import_module("transformers")


@cache
def model_at(path: str) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def logprobs(case: dict[str, Any]) -> list[float]:
    prompt, ids = case["prompt"], case["ids"]
    with torch.no_grad():
        logits = model_at(case["model"])(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
    scaled = torch.log_softmax(logits / case["temperature"], dim=-1)
    return [scaled[at, token].item() for at, token in enumerate(ids)]


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(logprobs(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
