"""What a model is: Chat Completions in and out, whatever runs behind it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Protocol

__all__ = ["Model"]


class Model(Protocol):
    """A model that can be called. Bodies are those of Chat Completions; what one model can't do it refuses by name.

    Attributes:
        name: of the model, as a body names it.
        window: most tokens of a request and its reply, or None where it is not known.
    """

    name: str
    window: int | None

    def __call__(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A completion for a request body; `model` may be missing from it.

        Raises:
            ModelError: it could not be reached, or answered with an error; says which.
        """

    def stream(self, body: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The chunks of a completion as they come; closing the generator stops the model.

        Raises:
            ModelError: as above, also in mid-stream.
        """

    def close(self) -> None:
        """Let go of connections and memory."""
