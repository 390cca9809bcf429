"""What all models of the API share."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


def said(text: str, example: Any = None) -> Any:
    """Describes a field, with an example of it for the OpenAPI page."""
    return Field(description=text, examples=None if example is None else [example])


class Model(BaseModel):
    """What all replies share."""

    model_config = ConfigDict(frozen=True)
