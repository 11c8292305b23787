"""A schema registry that Ottla does not run, for tests on an existing cluster."""

import ottla
from ottla.registry.options import RegistryOptions
from ottla.testing.external_registry import ExternalRegistry


def test_the_login_is_used_and_not_shown() -> None:
    with ottla.serve(registry=RegistryOptions(users={"alice": "secret"})) as broker:
        address = broker.registry_url.replace("http://", "http://alice:secret@")
        registry = ExternalRegistry(address)
        assert registry.ask("GET", "/subjects", None) == (200, [])
        assert registry.url == broker.registry_url
        assert ExternalRegistry(broker.registry_url).ask("GET", "/subjects", None)[0] == 401
