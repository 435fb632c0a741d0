"""Starts programs by forking a process that has everything imported: a start costs milliseconds, not two seconds.

`python -m fakes.fork_server` reads one request a line from its input and answers each with a number: `{"module": …}`
(see `Start` in fakes/programs.py) with a process id, `{"reap": id}` with that process's exit code, which is the negated
number of the signal that killed it. A process runs its module's `main`, as the console script does. Whoever still lives
when the input ends is killed.
"""

import importlib
import json
import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

import langchain_openai  # noqa: F401  # loaded by name otherwise, by every program
import uvicorn.protocols.http.httptools_impl  # noqa: F401  # the same

import app.assembly.programs  # noqa: F401  # the same
import app.main  # noqa: F401  # the same
from app.llm.counters import make_counter


def main() -> None:
    """Answer until the input ends, then leave no process behind."""
    make_counter("tiktoken").count("the vocabulary is read once, here")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever asks
    running: dict[int, int] = {}
    for line in os.fdopen(os.dup(0)):  # a program finds sys.stdin as a started one does: not read from
        request = json.loads(line)
        if "reap" in request:
            answer = _reap(running, request["reap"])
        else:
            answer = os.fork()
            if answer == 0:
                _become(request)
            running[answer] = os.pidfd_open(answer)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    for handle in running.values():
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)


def _reap(running: dict[int, int], pid: int) -> int:
    """Wait for the process's end."""
    _, status = os.waitpid(pid, 0)
    os.close(running.pop(pid))
    return os.waitstatus_to_exitcode(status)


def _become(request: dict[str, object]) -> NoReturn:
    """Run the program that was asked for, and end as it ends."""
    _settle(request)
    code: object = 1
    try:
        importlib.import_module(str(request["module"])).main()
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def _settle(request: dict[str, object]) -> None:
    """Take arguments, environment, folder and log as a started program finds them."""
    arguments, environment = request["arguments"], request["environment"]
    assert isinstance(arguments, list)
    assert isinstance(environment, dict)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    log = os.open(str(request["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, file in enumerate((nothing, log, log)):
        os.dup2(file, number)
    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["throughline", *arguments]


if __name__ == "__main__":
    main()
