"""Token counts of texts and context windows of models: no service and no database is needed.

Example:
    count_tokens("We ship on 14 May.", "openai:gpt-4o")      # 7
    get_context_limit("openai:gpt-4o")                       # 128000

It is separate from the rest of `throughline.client`, because it imports the code that knows the models.
"""

from throughline.llm import context_windows
from throughline.llm.counters import counter_of, make_counter
from throughline.settings import read_settings


def count_tokens(text: str, model: str = "") -> int:
    """Return the number of tokens of `text` for a model.

    The model is named as in agent files; '' is the setting `default_llm`. The count is exact for OpenAI's models in
    tiktoken's table (gpt-3.5-turbo and later) and works offline with each model's vocabulary. All others are estimated
    with cl100k_base. Raises SettingInvalid for settings that cannot be read.
    """
    return make_counter(counter_of(model or read_settings().default_llm)).count(text)


def get_context_limit(model: str = "") -> int:
    """Return the context window of a model in tokens: from the table of well-known names, else 8,192.

    A running service asks the provider's package first (LangChain's profile of the model), and learns from refusals.
    Raises SettingInvalid for settings that cannot be read.
    """
    return context_windows.get_context_limit(model or read_settings().default_llm)
