"""Starts programs by forking a process that has everything imported: a start costs milliseconds, not two seconds.

`python -m fakes.fork_server` reads one request a line from its input and answers each with a number: `{"module": …}`
(see `Start` in fakes/programs.py) with a process id, `{"reap": id}` with that process's exit code, which is the negated
number of the signal that killed it. A process runs its module's `main`, as the console script does, or its script.
Whoever still lives when the input ends is killed.
"""

import importlib
import json
import os
import runpy
import signal
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

import langchain_openai  # noqa: F401  # loaded by name otherwise, by every program
import uvicorn.protocols.http.httptools_impl  # noqa: F401  # the same

import app.assembly.programs  # noqa: F401  # the same
import app.client  # noqa: F401  # the same
import app.main  # noqa: F401  # the same
from app.llm.counters import make_counter

TO_THE_END = os.O_WRONLY | os.O_CREAT | os.O_APPEND


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
        if request["script"]:
            runpy.run_path(str(request["script"]), run_name="__main__")
        else:
            importlib.import_module(str(request["module"])).main()
        code = 0
    except SystemExit as ended:
        code = ended.code
        if isinstance(code, str):
            print(code, file=sys.stderr)  # noqa: T201  # as the interpreter would
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
    typed = os.open(str(request["typed"]), os.O_RDONLY)
    log, complaints = (os.open(str(request[name]), TO_THE_END, 0o600) for name in ("log", "complaints"))
    for number, file in enumerate((typed, log, complaints)):
        os.dup2(file, number)
    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [str(request["script"] or "throughline"), *arguments]


if __name__ == "__main__":
    main()
