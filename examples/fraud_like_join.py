"""Payments that come within minutes of a login from another country: two topics, joined by account and time.

    python examples/fraud_like_join.py --bootstrap 127.0.0.1:9092 --directory /tmp/alerts

Writes logins and payments of fifty accounts to the topics `logins` and `payments`, unless they are there, and runs the job to their end.
A pair is a login and a payment of the same account at most five minutes later; one is an alert if the countries differ.
"""

import argparse
import json
import random
from datetime import UTC, datetime, timedelta

from example_topics import ensure_topic, print_rows, produce
from pyspark.sql import functions

from moldau.streams import StreamJob, windows

BEGIN = datetime(2026, 1, 5, 8, tzinfo=UTC)
COUNTRIES = ("CZ", "DE", "AT")
ACCOUNTS = 50


def home(account: int) -> str:
    """The country of an account."""
    return COUNTRIES[account % len(COUNTRIES)]


def logins_and_payments() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Keys and JSON, in the order of the times: each account pays at home; every tenth login is from another country."""
    draw = random.Random(7)
    logins, payments = [], []
    for number in range(400):
        at, account = BEGIN + timedelta(seconds=30 * number), draw.randrange(ACCOUNTS)
        key = f"account-{account}"
        country = home(account + 1) if number % 10 == 0 else home(account)
        logins.append((key, json.dumps({"at": at.isoformat(), "account": key, "country": country})))
        paid = at + timedelta(seconds=20 if number % 2 == 0 else 600)
        payments.append((paid, key, {"account": key, "country": home(account), "amount": draw.randrange(1, 5000)}))
    payments.sort(key=lambda each: (each[0], each[1]))
    return logins, [(key, json.dumps({"at": at.isoformat(), **fields})) for at, key, fields in payments]


def alerts(brokers: str, directory: str) -> StreamJob:
    """The job: one row for each payment that looks wrong."""
    job = StreamJob("payment-alerts", brokers=brokers, directory=directory)
    logins = job.topic("logins", format="json", schema="at timestamp, account string, country string", time="at")
    payments = job.topic("payments", format="json", schema="at timestamp, account string, country string, amount long", time="at")
    pairs = windows.join(logins, payments, "account", before="0 seconds", after="5 minutes")
    rows = pairs.filter("country <> right_country").select(
        "account", functions.col("country").alias("login_from"), functions.col("right_country").alias("paid_from"), "amount", "right_at"
    )
    job.to_topic(rows, "payment-alerts", key="account")
    return job


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--directory", required=True, help="where the job's checkpoint lies")
    given = parser.parse_args()
    for topic, values in zip(("logins", "payments"), logins_and_payments(), strict=True):
        if ensure_topic(given.bootstrap, topic):
            produce(given.bootstrap, topic, values)
    ensure_topic(given.bootstrap, "payment-alerts")
    alerts(given.bootstrap, given.directory).run(once=True)
    print_rows(given.bootstrap, "payment-alerts")
