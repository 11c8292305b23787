"""`ottla console` in a separate process."""

import json
import subprocess
import sys
from urllib.request import urlopen


def test_a_program_learns_the_address_from_json() -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "console", "--port", "0", "--json", "-b", "127.0.0.1:1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as console:
        assert console.stdout is not None
        said = json.loads(console.stdout.readline())
        with urlopen(said["url"], timeout=20) as page:
            assert b"Ottla" in page.read()
        console.terminate()
        assert console.wait(20) == 0
    assert said["bootstrap"] == "127.0.0.1:1"
