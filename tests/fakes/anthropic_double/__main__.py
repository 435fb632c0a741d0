"""The double as its own process: `python -m fakes.anthropic_double --port 0 --print-url`, with `tests` on the path."""

import argparse

from fakes.anthropic_double.double import AnthropicDouble
from fakes.anthropic_double.serving import make_application
from fakes.provider_double.serving import address_of, bind, server_of


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description="A strict Anthropic provider for tests and benchmarks.")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--print-url", action="store_true", help="print the base URL for clients")
    parser.add_argument("--keep-prompts", action="store_true", help="keep every prompt, not only its figures")
    options = parser.parse_args()
    double = AnthropicDouble(keeps_prompts=options.keep_prompts)
    with bind(options.port) as listener:
        double.url = address_of(listener)
        if options.print_url:
            print(double.url, flush=True)  # noqa: T201  # the process that started it waits for this line
        server_of(make_application(double)).run(sockets=[listener])


if __name__ == "__main__":
    main()
