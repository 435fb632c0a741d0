"""Starts programs by forking a process that has everything imported: a start costs milliseconds, not two seconds.

`python -m fakes.fork_server SOCKET` returns once a process in the background listens there. Of a client it reads one
request a line and answers each with a number: `{"module": …}` (see `Start` in fakes/programs.py) with a process id,
`{"reap": id}` with that process's exit code, which is the negated number of the signal that killed it, `{"end": 0}`
by ending. A process runs its module's `main`, as the console script does, or its script. A process that outlives
its client is killed; so are those of a client that asks for something else.
"""

import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TextIO

from fakes.injected_conflicts import inject_if_asked

TO_THE_END = os.O_WRONLY | os.O_CREAT | os.O_APPEND
LOOK_SECONDS = 1.0
"""How often it looks, while it has no client, whether its socket was removed with the folder of a run that is over."""


def main() -> None:
    """Serve in the background."""
    _import_everything()
    inject_if_asked()
    with socket.socket(socket.AF_UNIX) as listener:
        path = Path(sys.argv[1])
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen()
        if os.fork() == 0:
            os.setsid()
            _Server(listener, path).serve()


def _import_everything() -> None:
    """Import what every program would, and read the vocabulary."""
    for name in (
        "langchain_openai",
        "uvicorn.protocols.http.httptools_impl",
        "throughline.assembly.programs",
        "throughline.client",
        "throughline.main",
    ):
        importlib.import_module(name)
    importlib.import_module("throughline.llm.counters").make_counter("tiktoken").count(
        "the vocabulary is read once, here"
    )


class _Client:
    """A process that asks for programs, and those that it has."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.lines = connection.makefile("rw")
        self.running: dict[int, int] = {}

    def answer(self, number: int) -> None:
        """Tell it a number; it may be gone."""
        with suppress(OSError):
            self.lines.write(f"{number}\n")
            self.lines.flush()

    def reap(self, pid: int) -> int:
        """Wait for the process's end."""
        _, status = os.waitpid(pid, 0)
        os.close(self.running.pop(pid))
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """Close this process's end, whatever cannot be told any more."""
        with suppress(OSError):
            self.lines.close()
        self.connection.close()

    def leave(self) -> None:
        """Kill what it has left behind."""
        for handle in self.running.values():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        for pid in list(self.running):
            self.reap(pid)
        self.close()


class _Server:
    """Answers one client at a time, whichever asks."""

    def __init__(self, listener: socket.socket, path: Path) -> None:
        self._listener = listener
        self._path = path
        self._clients: list[_Client] = []
        self._is_over = False
        self._asking = selectors.DefaultSelector()
        self._asking.register(listener, selectors.EVENT_READ)

    def serve(self) -> None:
        """Answer until a client ends it, or its run is over."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client
        while not self._is_over and (self._clients or self._path.exists()):
            for key, _ in self._asking.select(None if self._clients else LOOK_SECONDS):
                if key.data is None:
                    self._welcome()
                else:
                    self._answer(key.data)

    def _welcome(self) -> None:
        client = _Client(self._listener.accept()[0])
        self._clients.append(client)
        self._asking.register(client.connection, selectors.EVENT_READ, client)

    def _answer(self, client: _Client) -> None:
        """Do what the client asks. One that has no more to ask, or asks for what there is not, has left."""
        try:
            self._do(client, json.loads(client.lines.readline()))
        except (OSError, ValueError, LookupError):
            self._asking.unregister(client.connection)
            self._clients.remove(client)
            client.leave()

    def _do(self, client: _Client, request: dict[str, object]) -> None:
        if "reap" in request:
            client.answer(client.reap(int(str(request["reap"]))))
            return
        if "end" in request:
            self._is_over = True
            return
        pid = os.fork()
        if pid == 0:
            self._close()
            _become(request)
        client.running[pid] = os.pidfd_open(pid)
        client.answer(pid)

    def _close(self) -> None:
        """Let go of what a forked program is not to hold open."""
        self._asking.close()
        self._listener.close()
        for client in self._clients:
            client.close()
            for handle in client.running.values():
                os.close(handle)


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
    log, error_output = (os.open(str(request[name]), TO_THE_END, 0o600) for name in ("log", "error_output"))
    for number, file in enumerate((typed, log, error_output)):
        os.dup2(file, number)
    _open_streams()
    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [str(request["script"] or "throughline"), *arguments]


def _open_streams() -> None:
    """Make Python's streams again: those of the fork server were made for files, and a pipe cannot be sought in."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        old: TextIO = getattr(sys, name)
        buffering = 1 if number == 2 else -1
        own = open(number, mode, buffering, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115  # until the end
        setattr(sys, name, own)


if __name__ == "__main__":
    main()
