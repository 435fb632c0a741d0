"""The double as its own process: `python -m fakes.provider_double --port 0 --print-url`, with `tests` on the path."""

import argparse

from fakes.provider_double.double import ProviderDouble
from fakes.provider_double.serving import address_of, bind, make_application, server_of


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description="A strict OpenAI-compatible provider for tests and benchmarks.")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--print-url", action="store_true", help="print the base URL for clients")
    parser.add_argument("--keep-prompts", action="store_true", help="keep every prompt, not only its figures")
    parser.add_argument("--answer-seconds", type=float, default=0.0, help="how long an answer takes to begin")
    parser.add_argument("--summary-seconds", type=float, default=0.0, help="how long a summary takes to begin")
    options = parser.parse_args()
    double = ProviderDouble(
        keeps_prompts=options.keep_prompts,
        answer_seconds=options.answer_seconds,
        summary_seconds=options.summary_seconds,
    )
    with bind(options.port) as listener:
        double.url = f"{address_of(listener)}/v1"
        if options.print_url:
            print(double.url, flush=True)  # noqa: T201  # the process that started it waits for this line
        server_of(make_application(double)).run(sockets=[listener])


if __name__ == "__main__":
    main()
