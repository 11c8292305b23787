"""The list of messages, and that using one of them does not load all."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.wire import messages, stored
from ottla.wire.messages import REQUESTS, RESPONSES

# key: (oldest version that Ottla knows, newest that Apache Kafka 4.3.1 advertises)
ADVERTISED = {
    0: (0, 13), 1: (0, 18), 2: (0, 11), 3: (0, 13), 8: (0, 10), 9: (0, 10), 10: (0, 6), 11: (0, 9), 12: (0, 4),
    13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1), 18: (0, 4), 19: (0, 7), 20: (0, 6), 21: (0, 2),
    22: (0, 5), 23: (0, 4), 24: (0, 5), 25: (0, 4), 26: (0, 5), 27: (0, 2), 28: (0, 5), 29: (0, 3), 30: (0, 3),
    31: (0, 3), 32: (0, 4), 33: (0, 2), 34: (0, 2), 35: (0, 5), 36: (0, 2), 37: (0, 3), 38: (0, 3), 39: (0, 2),
    40: (0, 2), 41: (0, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1), 46: (0, 0), 47: (0, 0), 48: (0, 1),
    49: (0, 1), 50: (0, 0), 51: (0, 0), 55: (0, 2), 57: (0, 2), 60: (0, 2), 61: (0, 0), 64: (0, 0), 65: (0, 0),
    66: (0, 2), 68: (0, 1), 69: (0, 1), 71: (0, 0), 72: (0, 0), 74: (0, 1), 75: (0, 0), 76: (1, 1), 77: (1, 1),
    78: (1, 2), 79: (1, 2), 80: (0, 1), 81: (0, 0), 83: (0, 0), 84: (0, 0), 85: (0, 1), 86: (0, 0), 87: (0, 1),
    88: (0, 0), 89: (0, 0), 90: (0, 1), 91: (0, 0), 92: (0, 0),
}  # fmt: skip


def test_every_advertised_version_is_defined() -> None:
    found = {key: (REQUESTS[key].MIN_VERSION, REQUESTS[key].STABLE_VERSION) for key in ADVERTISED}
    assert found == ADVERTISED


def test_unknown_keys_and_names() -> None:
    assert 4 not in REQUESTS
    assert REQUESTS.get(4) is None
    with pytest.raises(KeyError):
        RESPONSES[999]
    with pytest.raises(AttributeError):
        messages.NonsenseRequest  # noqa: B018
    with pytest.raises(AttributeError):
        messages.Fetch  # noqa: B018
    with pytest.raises(AttributeError):
        stored.Nonsense  # noqa: B018


def test_names_and_keys_find_the_same_class() -> None:
    assert messages.FetchRequest is REQUESTS[1]
    assert messages.FetchResponse is RESPONSES[1]
    assert len(REQUESTS) == len(RESPONSES) == len(messages.API_NAMES)


def loaded_modules(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(*(name for name in sys.modules if name.startswith('ottla.wire')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return {name.removeprefix("ottla.wire.") for name in done.stdout.split()}


def test_one_name_loads_one_family() -> None:
    found = loaded_modules("from ottla.wire.messages import FetchRequest")
    assert "messages.fetch" in found
    assert not {name for name in found if name.startswith("messages.")} - {"messages.fetch"}
    assert not {"decoding", "encoding", "construction"} & found, "nothing is compiled before it is used"
    assert not {name for name in found if name.startswith("stored")}


def test_one_stored_record_does_not_load_the_groups() -> None:
    found = loaded_modules("from ottla.wire.stored import TransactionLogValue")
    assert "stored.transactions" in found
    assert "stored.groups" not in found
