"""Every API × resource × operation: users with one right each get the same errors as on Apache Kafka 4.3.1.

`python -m interop.acl_matrix kafka interop/acl_matrix.json` (in tests/) records the table again on a real Kafka.
"""

import json
from pathlib import Path

from interop.acl_matrix import KEPT, matrix, packed, users


def test_each_right_allows_what_it_allows_in_kafka(tmp_path: Path) -> None:
    theirs = json.loads(KEPT.read_text())
    ours = packed(matrix("ottla", tmp_path / "broker"))
    assert {api: row for api, row in ours.items() if row != theirs.get(api)} == {}
    assert ours.keys() == theirs.keys()
    assert len(theirs) * len(users()) > 5900
