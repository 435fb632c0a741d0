"""Bears the service's processes: has everything imported already, so that a birth costs a fork and not two seconds.

`python -m chaos.nursery` reads one birth a line from its input and answers each with a process id. The newborn runs
the service's own `main`, traced or not, as its console script does. Whoever still lives when the input ends is killed.
"""

import json
import os
import select
import signal
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

import langchain_openai  # noqa: F401  # loaded by name otherwise, by every newborn
import uvicorn.protocols.http.httptools_impl  # noqa: F401  # the same

import app.main
from app.llm.counters import make_counter
from chaos import worker_under_trace


def main() -> None:
    """Bear until the input ends, then leave nobody behind."""
    make_counter("tiktoken").count("the vocabulary is read once, here")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever asks for births
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead need nobody to ask for them
    born: list[int] = []
    for line in os.fdopen(os.dup(0)):  # a newborn finds sys.stdin as a program does: not read from
        birth = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _live(birth)
        born = [*filter(_lives, born), os.pidfd_open(pid)]
        print(pid, flush=True)  # the answer
    for child in born:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(child, signal.SIGKILL)


def _lives(child: int) -> bool:
    """Whether the process behind the handle lives; the handle of one that does not is closed."""
    is_dead = bool(select.select([child], [], [], 0)[0])
    if is_dead:
        os.close(child)
    return not is_dead


def _live(birth: dict[str, object]) -> NoReturn:
    """Become the process that was asked for."""
    _settle(birth)
    code: object = 1
    try:
        (worker_under_trace if birth["is_traced"] else app.main).main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def _settle(birth: dict[str, object]) -> None:
    """Take arguments, environment, folder and log as a started program finds them."""
    arguments, environment = birth["arguments"], birth["environment"]
    assert isinstance(arguments, list)
    assert isinstance(environment, dict)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(str(birth["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, file in enumerate((nothing, log, log)):
        os.dup2(file, number)
    os.chdir(str(birth["folder"]))
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["throughline", *arguments]


if __name__ == "__main__":
    main()
