"""A child process of a supervisor that answers each connection with its number; files in its folder say how it fails.

`fails-N`: child N ends with code 3 before it is ready. `dies-N`: it ends with code 4 after it was ready. `silent-N`: it
reports nothing. `stays-N`: asked to stop, it accepts nothing more and stays. Child N notes the counts that it is told
in `counts-N`, and that it was asked to stop in `stopped-N`.
"""

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from types import FrameType

ALIVE_SECONDS = 0.05


class Child:
    """The child's sockets, number and folder."""

    def __init__(self) -> None:
        self.listener, self.line = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
        self.number = sys.argv[3]

    def file(self, name: str) -> Path:
        return Path(os.environ["CHILD_FOLDER"]) / f"{name}-{self.number}"

    def stop(self, _signal: int, _frame: FrameType | None) -> None:
        self.file("stopped").touch()
        if self.file("stays").exists():
            os.set_inheritable(self.listener.fileno(), False)  # noqa: FBT003  # its only argument
            os.execvp("sleep", ["sleep", "1000"])  # noqa: S606  # a program without sockets
        os._exit(0)

    def read(self) -> None:
        try:
            with self.file("counts").open("ab", buffering=0) as counts:
                while data := self.line.recv(1000):
                    counts.write(data)
        finally:
            os._exit(5)

    def send(self, report: bytes) -> None:
        try:
            self.line.send(report)
        except OSError:  # the supervisor has ended
            os._exit(5)

    def report(self) -> None:
        while not self.file("silent").exists():
            self.send(b"alive\n")
            time.sleep(ALIVE_SECONDS)

    def serve(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            with connection:
                connection.sendall(self.number.encode())


def main() -> None:
    child = Child()
    signal.signal(signal.SIGTERM, child.stop)
    if child.file("fails").exists():
        sys.exit(3)
    child.send(b"ready\n")
    if child.file("dies").exists():
        sys.exit(4)
    for work in (child.read, child.report):
        threading.Thread(target=work, daemon=True).start()
    child.serve()


if __name__ == "__main__":
    main()
