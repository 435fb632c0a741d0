"""How many tokens a text has for a model, and how many the model takes: no service and no database is needed.

    count_tokens("We ship on 14 May.", "openai:gpt-4o")      # 8
    get_context_limit("openai:gpt-4o")                       # 128000

Apart from the rest of `throughline.client`, as it loads what knows the models.
"""

from throughline.llm import context_windows
from throughline.llm.counters import counter_of, make_counter
from throughline.settings import read_settings


def count_tokens(text: str, model: str = "") -> int:
    """Return the tokens of `text` for a model named as in agent files, '' being the setting `default_llm`.

    Exact for OpenAI's models that tiktoken's table has (gpt-3.5-turbo and later), counted offline with the vocabulary
    of each; all others are estimated with cl100k_base.
    Raises SettingInvalid for settings that cannot be read.
    """
    return make_counter(counter_of(model or read_settings().default_llm)).count(text)


def get_context_limit(model: str = "") -> int:
    """Return the window of a model in tokens, by the table of well-known names; 8,192 for all others.

    A running service asks the provider's package first (LangChain's profile of the model), and learns from refusals.
    Raises SettingInvalid for settings that cannot be read.
    """
    return context_windows.get_context_limit(model or read_settings().default_llm)
