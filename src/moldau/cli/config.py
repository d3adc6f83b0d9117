"""``moldau config``: show and change settings of topics and brokers."""

from typing import TYPE_CHECKING

import click

from moldau.cli.options import (
    TEXT,
    TOPIC,
    bootstrap_option,
    config_option,
    json_option,
    open_cluster,
    refuse_unknown_settings,
    timeout_option,
)
from moldau.cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from moldau.client.admin import AdminResource, ConfigEntry

ALL_BROKERS = "default"
BROKER_DIGITS_MAX = 10


def resource_options(function: "Callable[..., Any]") -> "Callable[..., Any]":
    """``--topic T`` or ``--broker N``, of which one is needed."""
    broker = click.option("--broker", metavar="ID", type=TEXT, help="A broker by its number, or 'default' for what holds for all brokers.")
    topic = click.option("--topic", metavar="NAME", type=TOPIC, help="A topic.")
    return topic(broker(function))


@click.group("config")
def config() -> None:
    """Show and change settings of topics and brokers."""


@config.command("describe")
@resource_options
@click.option("--all", "all_", is_flag=True, help="Show the defaults too, not only what was set.")
@click.option("--help-texts", "documentation", is_flag=True, help="Explain each setting.")
@json_option
@bootstrap_option
@timeout_option(10.0)
def describe(topic: str | None, broker: str | None, all_: bool, documentation: bool, as_json: bool, bootstrap: str, timeout: float) -> None:
    """Show the settings of a topic or a broker."""
    from moldau.client.admin import Admin

    resource = _resource(topic, broker)
    with open_cluster(bootstrap, timeout) as cluster:
        entries = Admin(cluster).describe_configs(resource, documentation=documentation)
    shown = [entry for entry in entries if all_ or not _is_default(entry)]
    if as_json:
        print_json([_json(entry, documentation=documentation) for entry in shown])
        return
    if not shown:
        click.echo(f"{resource}: all settings are defaults (--all shows them)")
        return
    columns = ["name", "value", "source", "changeable", "meaning"]
    rows = [[entry.name, _value(entry), _source(entry), "no" if entry.read_only else "yes", entry.documentation] for entry in shown]
    width = len(columns) if documentation else len(columns) - 1
    print_table(columns[:width], [row[:width] for row in rows], drop=("changeable", "source"))


@config.command("alter")
@resource_options
@config_option("-s", "--set", "changes", help_="A setting to change; may be repeated.")
@click.option(
    "-d", "--delete", "deleted", metavar="NAME", type=TEXT, multiple=True, help="A setting to put back to its default; may be repeated."
)
@click.option("--dry-run", is_flag=True, help="Only let the broker check it.")
@bootstrap_option
@timeout_option(10.0)
def alter(
    topic: str | None, broker: str | None, changes: dict[str, str], deleted: tuple[str, ...], dry_run: bool, bootstrap: str, timeout: float
) -> None:
    """Change settings of a topic or a broker, at once and durably. All of them, or none if one is refused."""
    from moldau.client.admin import Admin, ConfigUpdate

    resource = _resource(topic, broker)
    if not changes and not deleted:
        raise click.UsageError("nothing to change: give --set or --delete")
    with open_cluster(bootstrap, timeout) as cluster:
        admin = Admin(cluster)
        refuse_unknown_settings(admin, resource, deleted)
        admin.alter_configs(resource, ConfigUpdate(changes, deleted), validate_only=dry_run)
    click.echo(f"{resource}: {'would be altered' if dry_run else 'altered'}")


def _resource(topic: str | None, broker: str | None) -> "AdminResource":
    from moldau.client.admin import AdminResource, AdminResourceType

    if (topic is None) == (broker is None):
        raise click.UsageError("give either --topic or --broker")
    if topic is not None:
        return AdminResource(AdminResourceType.TOPIC, topic)
    assert broker is not None
    if broker == ALL_BROKERS:
        return AdminResource(AdminResourceType.BROKER, "")
    if not (broker.isascii() and broker.isdigit() and len(broker) <= BROKER_DIGITS_MAX):
        raise click.BadParameter(f"{broker!r} is neither a broker's number nor '{ALL_BROKERS}'", param_hint="--broker")
    return AdminResource(AdminResourceType.BROKER, broker)


def _is_default(entry: "ConfigEntry") -> bool:
    from moldau.model.config.definition import ConfigSource

    return entry.source is ConfigSource.DEFAULT


def _source(entry: "ConfigEntry") -> str:
    return "unknown" if entry.source is None else entry.source.name.lower().replace("_", " ")


def _value(entry: "ConfigEntry") -> str:
    if entry.sensitive:
        return "(secret)"
    return "(not set)" if entry.value is None else entry.value


def _json(entry: "ConfigEntry", *, documentation: bool) -> dict[str, object]:
    shown: dict[str, object] = {
        "name": entry.name,
        "value": entry.value,
        "source": _source(entry),
        "read_only": entry.read_only,
        "sensitive": entry.sensitive,
    }
    if documentation:
        shown["documentation"] = entry.documentation
    return shown
