"""The server that may be asked for a model's window, found in the client of the model's calls.

Address and key are read from that client, so that the question reaches no server that the calls do not reach.
"""

from langchain_core.language_models import BaseChatModel

from throughline.llm.ask_window import ModelServer
from throughline.llm.provider_keys import is_of_a_provider
from throughline.llm.providers import ModelName


def find_server(name: ModelName, model: BaseChatModel) -> ModelServer | None:
    """Return the server of a model on the OpenAI wire or of Ollama; None for a provider's own server.

    The windows of providers' own models are known by their names.
    """
    match name.provider.name:
        case "openai":
            client = getattr(model, "root_async_client", None)
            address, key = getattr(client, "base_url", None), getattr(client, "api_key", None)
        case "ollama":
            client = getattr(getattr(model, "_async_client", None), "_client", None)
            address = getattr(client, "base_url", None)
            key = getattr(client, "headers", {}).get("authorization", "").removeprefix("Bearer ")
        case _:
            return None
    if address is None or is_of_a_provider(str(address)):
        return None
    return ModelServer(str(address), name.model, key if isinstance(key, str) else "")
