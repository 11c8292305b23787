"""Brokers by address, ports, and the figures of /proc."""

import os
import socket

import pytest

from ottla.bench import proc
from ottla.bench.model import NotMeasurable
from ottla.bench.targets import free_port, parse_bootstrap


def test_a_bootstrap_names_a_broker():
    target = parse_bootstrap("other=example.org:9092")
    assert (target.name, target.address, target.pid) == ("other", ("example.org", 9092), None)
    assert parse_bootstrap("other=[::1]:9092@17").address == ("::1", 9092)
    assert parse_bootstrap("other=[::1]:9092@17").pid == 17


@pytest.mark.parametrize("text", ["localhost:9092", "=localhost:9092", "a=localhost", "a=localhost:x", "a=h:1@x"])
def test_a_bad_bootstrap_is_refused(text):
    with pytest.raises(ValueError, match="NAME=HOST:PORT"):
        parse_bootstrap(text)


def test_a_remote_broker_has_no_process_figures():
    target = parse_bootstrap("other=127.0.0.1:9092")
    with pytest.raises(NotMeasurable):
        target.cpu_seconds()
    with pytest.raises(NotMeasurable):
        target.fresh()


def test_a_port_in_use_is_skipped():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        if port < 60000:
            assert free_port(port) > port


def test_cpu_time_and_memory_of_this_process():
    before = proc.cpu_seconds(os.getpid())
    while proc.cpu_seconds(os.getpid()) == before:
        sum(range(10_000))
    assert proc.cpu_seconds(os.getpid()) > before
    assert 5 < proc.resident_mb(os.getpid()) < 5000
    assert os.getpid() in proc.tree(os.getpid())


def test_the_machine_in_one_line():
    assert "GiB" in proc.machine() and "\n" not in proc.machine()
