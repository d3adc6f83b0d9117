"""``moldau audit forget``: take the counts of a tier back."""

import click

from moldau.cli.audit_comparing import unheard_tier
from moldau.cli.options import TEXT, TOPIC, bootstrap_option, open_cluster, timeout_option
from moldau.cli.output import counted


@click.command("forget")
@click.option("--tier", metavar="NAME", type=TOPIC, required=True, help="The tier whose counts are taken back.")
@click.option("--topic", "topics", metavar="NAME", type=TEXT, multiple=True, help="Only of this topic; may be repeated.  [default: all]")
@click.option("--dry-run", is_flag=True, help="Only print what would be forgotten.")
@bootstrap_option
@timeout_option(30.0)
def forget(tier: str, topics: tuple[str, ...], dry_run: bool, bootstrap: str, timeout: float) -> None:
    """Take back what a tier has counted so far, so that the tier is another job's or table's, or counts again from the beginning.

    For a load whose table was deleted, or whose tier another load has used too. A load that continues under this tier publishes the
    counts of its whole table again with its next load. An auditor counts again from the beginning once its group has no offsets:
    moldau group delete audit-NAME. No event is touched.

    \b
    moldau audit forget --tier lake --topic orders
    """
    from moldau.audit.follow import counted_topics, read_audit, take_back
    from moldau.tracking.audit_record import PRODUCER_TIER

    if tier == PRODUCER_TIER:
        raise click.UsageError("tier producer is that of the producers themselves: no other program can count again what they sent")
    with open_cluster(bootstrap, timeout) as cluster:
        found = read_audit(cluster)
        heard = {*found.heard_ms, *found.auditors} - {PRODUCER_TIER}
        if heard and tier not in heard:
            raise unheard_tier(tier, heard, "--tier")
        known = counted_topics(found, tier)
        if not known:
            raise click.ClickException(f"tier {tier} has no counts")
        unknown = sorted(set(topics) - set(known))
        if unknown:
            raise click.BadParameter(f"tier {tier} has no counts of topic {unknown[0]}, only of {', '.join(known)}", param_hint="--topic")
        chosen = sorted(set(topics)) or known
        sums = {
            topic: sum(entry.count.count for key, entry in found.counts.get(tier, {}).items() if key.topic == topic) for topic in chosen
        }
        if not dry_run:
            take_back(bootstrap, tier, chosen)
    for topic in chosen:
        click.echo(f"{'would forget' if dry_run else 'forgot'}: tier {tier}, topic {topic}, {counted(sums[topic], 'event')}")
    if not dry_run and tier in found.auditors:
        click.echo(f"its auditor counts again from the beginning after: moldau group delete audit-{tier}", err=True)
