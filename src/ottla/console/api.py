"""All operations of the JSON API: importing this module declares them."""

from __future__ import annotations

from ottla.console import access as access
from ottla.console import brokers as brokers
from ottla.console import groups as groups
from ottla.console import learn as learn
from ottla.console import overview as overview
from ottla.console import powers as powers
from ottla.console import quorum as quorum
from ottla.console import records as records
from ottla.console import redrive as redrive
from ottla.console import replicas as replicas
from ottla.console import requests as requests
from ottla.console import schemas as schemas
from ottla.console import storage as storage
from ottla.console import topics as topics
from ottla.console import transactions as transactions
from ottla.console.operations import OPERATIONS as OPERATIONS
