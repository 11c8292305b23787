"""/config, /mode, /contexts and information about the registry."""

from __future__ import annotations

from typing import Any

from .. import errors, names
from ..operations import Outcome
from ..operations.delete import delete_context
from ..operations.settings import delete_config, delete_mode, setting_subject, update_config, update_mode
from ..records import CONFIG_FIELDS, Config
from .http import Call


def _subject(call: Call) -> str | None:
    """The subject of a setting. Aliases are not resolved, because they are set here."""
    return setting_subject(call.params.get("subject"))


def _valid_subject(call: Call) -> str | None:
    subject = call.params.get("subject")
    if subject is not None and not names.is_valid(subject, for_settings=True):
        raise errors.invalid_subject(subject)
    return _subject(call)


def get_config(call: Call) -> Outcome[Any]:
    subject = _subject(call)
    config = call.state.config_in_scope(subject) if call.flag("defaultToGlobal") else call.state.config(subject)
    if config is None:
        raise errors.config_not_set(subject or "")
    return Outcome(_ordered(config))


def set_config(call: Call) -> Outcome[Any]:
    outcome = update_config(call.state, _valid_subject(call), call.object())
    # The answer spells the level as in the request, unlike the stored config.
    answer = {
        ("compatibility" if name == "compatibilityLevel" else name): value
        for name, value in _ordered(outcome.answer).items()
    }
    return Outcome(answer, outcome.records)


def remove_config(call: Call) -> Outcome[Any]:
    outcome = delete_config(call.state, _subject(call))
    return Outcome(_ordered(outcome.answer), outcome.records)


def _ordered(config: Config) -> Config:
    return {name: config[name] for name in CONFIG_FIELDS if name in config}


def get_mode(call: Call) -> Outcome[Any]:
    subject = _subject(call)
    mode = call.state.mode_in_scope(subject) if call.flag("defaultToGlobal") else call.state.mode(subject)
    if mode is None:
        raise errors.mode_not_set(subject or "")
    return Outcome({"mode": mode})


def set_mode(call: Call) -> Outcome[Any]:
    mode = call.object().get("mode")
    if mode is not None and not isinstance(mode, str):
        raise errors.invalid_mode()
    outcome = update_mode(call.state, _valid_subject(call), mode, call.flag("force"))
    return Outcome({"mode": outcome.answer}, outcome.records)


def remove_mode(call: Call) -> Outcome[Any]:
    outcome = delete_mode(call.state, _subject(call), call.flag("recursive"))
    return Outcome({} if outcome.answer is None else {"mode": outcome.answer}, outcome.records)


def list_contexts(call: Call) -> Outcome[Any]:
    contexts = [names.DEFAULT_CONTEXT, *sorted(call.state.named_contexts)]
    return Outcome(call.page([context for context in contexts if context.startswith(call.text("contextPrefix"))]))


def remove_context(call: Call) -> Outcome[Any]:
    context = names.context_from_path(call.params["context"])
    if context is None:
        raise errors.bad_request(f"Context name '{call.params['context']}' cannot contain a colon")
    return delete_context(call.state, context)


def get_root(call: Call) -> Outcome[Any]:
    return Outcome({})


def get_cluster_id(call: Call) -> Outcome[Any]:
    clusters = {
        "kafka-cluster": call.info.kafka_cluster,
        "schema-registry-cluster": call.info.registry_cluster,
    }
    return Outcome({"scope": {"path": [], "clusters": clusters}})


def get_server_version(call: Call) -> Outcome[Any]:
    return Outcome({"version": call.info.version, "commitId": call.info.commit})


def get_deployment(call: Call) -> Outcome[Any]:
    return Outcome({"attributes": []})
