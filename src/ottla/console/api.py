"""All operations of the JSON API: importing this module declares them."""

from __future__ import annotations

from ottla.console import groups as groups
from ottla.console import overview as overview
from ottla.console import powers as powers
from ottla.console import records as records
from ottla.console import requests as requests
from ottla.console import storage as storage
from ottla.console import topics as topics
from ottla.console.operations import OPERATIONS as OPERATIONS
