"""Files for --client-config that do not fit the broker, and the messages for users."""

from pathlib import Path
from typing import Any

import pytest

LOGIN = "sasl.mechanism=PLAIN\nsasl.username=alice\nsasl.password=secret\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("security.protocol=SSL\n", "breaks off the TLS handshake; is TLS spoken at this port?"),
        (f"security.protocol=SASL_SSL\n{LOGIN}", "breaks off the TLS handshake"),
        (f"security.protocol=SASL_PLAINTEXT\n{LOGIN}", "takes no login at this port"),
        (
            "security.protocol=SSL\nssl.truststore.location=absent.pem\n",
            "ssl.truststore.location: cannot read absent.pem",
        ),
        ("security.protocol=TLS\n", "security.protocol is one of PLAINTEXT, SSL"),
    ],
)
def test_a_plaintext_listener_needs_no_security_settings(cli: Any, tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(text)
    said = cli("topics", "list", "--client-config", path, code=1).err
    assert told in said
    assert len(said.splitlines()) == 1


def test_a_misspelt_property_is_reported(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("security.protocl=SSL\nacks=all\nssl.keystore.password=x\nssl.protocol=TLSv1.3\n")
    said = cli("topics", "list", "--client-config", path).err
    (line,) = [line for line in said.splitlines() if "warning" in line]
    assert line.endswith("client.properties: security.protocl is ignored; did you mean security.protocol?")
