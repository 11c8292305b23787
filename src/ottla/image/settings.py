"""`python -m ottla.image.settings` prints the settings from the environment as server.properties."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ottla.image.start import settings_of


def as_properties(settings: Mapping[str, str]) -> str:
    escaped = {key: value.replace("\\", "\\\\").replace("\n", "\\n") for key, value in settings.items()}
    return "".join(f"{key}={value}\n" for key, value in escaped.items())


if __name__ == "__main__":
    print(as_properties(settings_of(os.environ, None)[0]), end="")
