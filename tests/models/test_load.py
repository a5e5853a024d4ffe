"""From a name to a model."""

from __future__ import annotations

from contextlib import closing

import pytest

from forgetless.errors import ConfigError
from forgetless.models.load import load_model
from forgetless.models.openai import OpenAI


def test_an_address_is_a_server() -> None:
    with closing(load_model("http://localhost:1/v1", "gpt-4o", "k")) as model:
        assert isinstance(model, OpenAI)
        assert model.name == "gpt-4o"


@pytest.mark.parametrize(
    ("spec", "model", "told"),
    [
        ("embeded", None, "did you mean 'embedded'"),
        ("scripted", None, "an http"),
        ("localhost:8000/v1", None, "did you mean 'http://localhost:8000/v1'"),
        ("htp://host", None, "did you mean 'http://host'"),
        ("http://host/v1", None, "name the model"),
        ("embedded", "gpt-4o", "leave out the name 'gpt-4o'"),
        ("nowhere.gguf", None, "no model file 'nowhere.gguf'"),
    ],
)
def test_a_wrong_name_says_what_was_meant(spec: str, model: str | None, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_model(spec, model)
