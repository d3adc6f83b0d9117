"""Reassignments in Kafka's JSON format: ``{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}``."""

import json
from typing import Any

import click

from moldau.cli.partition_moves import FORMAT_VERSION, ClusterLayout, check_brokers
from moldau.client.placement import Placement, Replicas
from moldau.model.identity import TopicPartition

ANY = "any"
"""As a log directory: which one is left to the broker."""


def read_file(name: str, layout: ClusterLayout) -> Placement:
    """The replicas of each partition of a file, ``-`` standard input; click.ClickException for what cannot be done to `layout`."""
    with click.open_file(name, encoding="utf-8") as file:
        text = file.read()
    wanted = parse(text, name)
    for where, replicas in wanted.items():
        if where not in layout.partitions:
            raise click.ClickException(f"{name}: partition {where} does not exist; nothing was changed")
        check_brokers(replicas, layout, f"{name}: partition {where}: ")
    return wanted


def parse(text: str, name: str) -> Placement:
    """The replicas of each partition. click.ClickException names what is wrong."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"{name}: not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise click.ClickException(f'{name}: not a reassignment: {{"version": 1, "partitions": [...]}}')
    if document.get("version", FORMAT_VERSION) != FORMAT_VERSION:
        raise click.ClickException(f"{name}: version {document['version']} of the format is not known, only {FORMAT_VERSION}")
    wanted: Placement = {}
    for number, entry in enumerate(document["partitions"]):
        where, replicas = _parse_entry(entry, f"{name}: partitions[{number}]")
        if where in wanted:
            raise click.ClickException(f"{name}: partition {where} comes twice")
        wanted[where] = replicas
    if not wanted:
        raise click.ClickException(f"{name}: it names no partition")
    return wanted


def _parse_entry(entry: Any, place: str) -> tuple[TopicPartition, Replicas]:
    if not isinstance(entry, dict) or not isinstance(entry.get("topic"), str) or not _is_number(entry.get("partition")):
        raise click.ClickException(f"{place}: needs a topic, a partition and replicas")
    where, replicas = TopicPartition(entry["topic"], entry["partition"]), entry.get("replicas")
    if not isinstance(replicas, list) or not replicas or not all(map(_is_number, replicas)):
        raise click.ClickException(f"{place}: the replicas of {where} are not a list of brokers' numbers")
    if len(dict.fromkeys(replicas)) < len(replicas):
        raise click.ClickException(f"{place}: the replicas of {where} name a broker twice: {replicas}")
    directories = entry.get("log_dirs", [])
    if not isinstance(directories, list) or any(each != ANY for each in directories):
        raise click.ClickException(f"{place}: log_dirs of {where} can only be {ANY!r}: this command leaves directories to the brokers")
    return where, tuple(replicas)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
