"""The process that compacts a large log: reads an order from standard input, and writes answers to standard output.

Each message is four bytes of length and a pickle. The order is (data folder, job, bytes per second); the answers are
the cleaned groups and then None, or the exception that ended the work. The process ends with its input: after a
broker is killed, no process may write to its folder.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from typing import BinaryIO

from ottla.log.cleaning_job import Compaction
from ottla.log.files import PosixDisk
from ottla.server.cleaner_work import Throttle

NICENESS = 10
"""Compaction can wait, the broker's clients cannot."""


def main() -> None:
    os.nice(NICENESS)
    orders, answers = sys.stdin.buffer, sys.stdout.buffer
    size = int.from_bytes(orders.read(4), "big")
    root, job, bytes_per_second = pickle.loads(orders.read(size))
    threading.Thread(target=_end_with, args=(orders,), daemon=True).start()
    throttle = Throttle(bytes_per_second)
    disk = PosixDisk(root)
    try:
        for group in Compaction(job, disk, throttle.pace).groups():
            _answer(answers, group)
        _answer(answers, None)
    except Exception as error:
        _answer(answers, error)
    finally:
        disk.close()


def _end_with(orders: BinaryIO) -> None:
    os.read(orders.fileno(), 1)
    os._exit(1)


def _answer(answers: BinaryIO, message: object) -> None:
    body = pickle.dumps(message)
    answers.write(len(body).to_bytes(4, "big") + body)
    answers.flush()


if __name__ == "__main__":
    main()
