"""``moldau audit watch``: how the tiers compare, again and again."""

from typing import Any

import click

from moldau.cli.audit_comparing import comparing_options, exit_code, rules_of
from moldau.cli.options import SECONDS, bootstrap_option, open_cluster, timeout_option


@click.command("watch")
@comparing_options
@click.option("--every", type=SECONDS, default=5.0, show_default=True, metavar="SECONDS", help="Look so often.")
@click.option("--until-complete", is_flag=True, help="End when everything is complete; exit code 4 at the first loss or duplication.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each change, one in a line.")
@bootstrap_option
@timeout_option(30.0)
def watch(every: float, until_complete: bool, as_json: bool, bootstrap: str, timeout: float, **comparing: Any) -> None:
    """Show how the tiers compare, again and again, until Ctrl-C or SIGTERM: a table at a terminal, elsewhere a line for each change.

    Brokers that are away are waited for, and told of within seconds. What all tiers have agreed about for a day is kept as one number for
    each topic.
    """
    from functools import partial

    from moldau.audit.forgetting import Watch
    from moldau.cli.audit_changes import watching_view
    from moldau.cli.interruptions import Interruptions
    from moldau.cli.output import sleep_while_read
    from moldau.cli.patience import Outage, PatientCluster

    rules, watched, outage = rules_of(**comparing), Watch(), Outage()
    make = partial(PatientCluster, tell=outage.tell)
    try:
        with Interruptions() as interruptions, open_cluster(bootstrap, timeout, make) as cluster, watching_view(as_json=as_json) as show:
            while True:
                with outage.waited_for():
                    found = watched.look(cluster, rules())
                    outage.over()
                    with interruptions.held():
                        show(found)
                    if until_complete and (found.alarming or found.complete):
                        click.get_current_context().exit(exit_code(found, complete=True))
                outage.rest(every, cluster, sleep=sleep_while_read)
    except KeyboardInterrupt:
        pass
