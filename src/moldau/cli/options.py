"""Options that many commands share, and the values they read: names, times and durations as people write them.

A variable that was set long ago is the last place where a user looks who has given no option.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from moldau.model.near_names import did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from moldau.client.admin import Admin, AdminResource
    from moldau.client.cluster import Cluster

TIME_FORMS = "a duration ago (90s, 30m, 1h, 2d, 1w), an ISO time (UTC unless it has a zone), or @ and milliseconds since 1970"
"""For help texts and messages."""
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DURATION = re.compile(rf"(\d{{1,15}}(?:\.\d{{1,9}})?)({'|'.join(_UNIT_MS)})?", re.ASCII)
_MILLISECONDS = re.compile(r"@(\d{1,18})", re.ASCII)


def parse_duration_ms(text: str) -> float:
    """Milliseconds of ``500ms``, ``90s``, ``30m``, ``1.5h``, ``2d``, ``1w``; a number alone is seconds. ValueError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a number of seconds, nor a duration such as 90s, 30m, 2h, 1d")
    return float(found[1]) * _UNIT_MS[found[2] or "s"]


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 of an ISO time, ``@1357016400000``, or so long before now: ``90s``, ``1h``, ``2d``. ValueError.

    A time without a zone is UTC. A time before 1970 is 1970: to a broker negative timestamps are something else (-1 the end, -2 the
    beginning).
    """
    from datetime import UTC, datetime  # which most commands do without

    word = text.strip()
    if found := _MILLISECONDS.fullmatch(word):
        return int(found[1])
    ago = _DURATION.fullmatch(word)
    if ago is not None and ago[2]:
        return max(0, now_ms - round(parse_duration_ms(word)))
    try:
        moment = datetime.fromisoformat("" if ago else word)
    except ValueError:
        raise ValueError(f"{text!r} is not a time: write {TIME_FORMS}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000))


class Time(click.ParamType[int]):
    """A time, in milliseconds since 1970."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The time, or a usage error."""
        from moldau.tracking.clock import now_ms

        try:
            return value if isinstance(value, int) else parse_time(value, now_ms())
        except ValueError as error:
            self.fail(str(error), param, ctx)


TIME = Time()


F = TypeVar("F", bound=Callable[..., Any])

PARTITIONS_MAX = 2**31 - 1
BROKER_ID_MAX = 2**31 - 1
REPLICAS_MAX = 2**15 - 1
"""What the protocol's numbers hold; a broker allows less."""

TEXT_BYTES_MAX = 2**15 - 1
"""A string in most requests."""

TIMEOUT_MAX_S = 86_400.0

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
REGISTRY_VARIABLE = "MOLDAU_REGISTRY"
DEFAULT_REGISTRY = "http://127.0.0.1:8081"


class TextType(click.types.StringParamType):
    """Text that a request can carry: UTF-8 of at most `TEXT_BYTES_MAX` bytes. Arguments that are not UTF-8 reach us with surrogates."""

    def __init__(self, *, may_be_empty: bool = True) -> None:
        self._may_be_empty = may_be_empty

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text as it is, or a usage error."""
        text = str(super().convert(value, param, ctx))
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            self.fail(f"{text!a} is not UTF-8", param, ctx)
        if not size and not self._may_be_empty:
            self.fail("must not be empty", param, ctx)
        if size > TEXT_BYTES_MAX:
            self.fail(f"{text[:20]!r}... has {size:,} bytes, at most {TEXT_BYTES_MAX:,} can be sent", param, ctx)
        return text


class TopicName(TextType):
    """A topic's name, which shells complete."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        """The broker's topics."""
        from moldau.cli.existing_names import topic_names

        return topic_names(ctx, incomplete)


class GroupName(TextType):
    """A group's name, which shells complete."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        """The broker's groups."""
        from moldau.cli.existing_names import group_names

        return group_names(ctx, incomplete)


class BrokerNumber(click.IntRange):
    """A broker's number, which shells complete."""

    name = "ID"

    def __init__(self) -> None:
        super().__init__(0, BROKER_ID_MAX)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        """The live brokers."""
        from moldau.cli.existing_names import broker_ids

        return broker_ids(ctx, incomplete)


class BrokerIds(click.ParamType[tuple[int, ...]]):
    """Different brokers, by commas."""

    name = "ID,ID,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Their numbers, or a usage error."""
        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in value.split(",")]
        if not all(word.isascii() and word.isdigit() and len(word) <= 10 for word in words):
            self.fail(f"{value!r} is not a list of brokers' numbers, such as 1,2,3", param, ctx)
        brokers = tuple(map(int, words))
        if len(dict.fromkeys(brokers)) < len(brokers):
            self.fail(f"{value!r} names a broker twice", param, ctx)
        return brokers


class ExistingPath(click.Path[Any]):
    """A path that exists. One that cannot be looked at for another reason, as below a directory without permission, is not "missing"."""

    def __init__(self, **options: Any) -> None:
        super().__init__(exists=True, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, or a usage error."""
        if not (self.allow_dash and value == "-"):
            try:
                os.stat(value)
            except (FileNotFoundError, NotADirectoryError):
                pass  # click's own words
            except OSError as error:
                self.fail(f"{self.name.title()} {click.format_filename(value)!r}: {(error.strerror or str(error)).lower()}", param, ctx)
        return super().convert(value, param, ctx)


class NearChoice(click.Choice[str]):
    """One of some words; the error for another one suggests the nearest."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """All words, and the nearest."""
        message, hint = super().get_invalid_choice_message(value, ctx), did_you_mean(str(value), self.choices)
        return f"{message.removesuffix('.')}{hint}" if hint else message


class Seconds(click.FloatRange):
    """A time limit from 0.1 s to a day: a number of seconds, or ``90s``, ``5m``, ``1h``."""

    def __init__(self) -> None:
        super().__init__(0.1, TIMEOUT_MAX_S)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A number of seconds in the range."""
        try:
            seconds = value if isinstance(value, float) else parse_duration_ms(value) / 1000
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return super().convert(seconds, param, ctx)


TEXT = TextType()
NAME = TextType(may_be_empty=False)
"""Of something that has a name: an empty one is a variable that was not set."""
TOPIC = TopicName()
GROUP = GroupName(may_be_empty=False)
BROKER = BrokerNumber()
BROKERS = BrokerIds()
SECONDS = Seconds()


def bootstrap_option(function: F) -> F:
    """``--bootstrap HOST:PORT``, as the parameter `bootstrap`."""
    return click.option(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        type=TEXT,
        envvar="MOLDAU_BOOTSTRAP",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        callback=_check_bootstrap,
        help="A broker to ask; several are separated by commas.",
    )(function)


def bootstraps_option(function: F) -> F:
    """``--bootstrap HOST:PORT``, repeated for several clusters, as the parameter `bootstraps`."""
    return click.option(
        "-b",
        "--bootstrap",
        "bootstraps",
        metavar="HOST:PORT",
        type=TEXT,
        multiple=True,
        envvar="MOLDAU_BOOTSTRAP",
        default=(DEFAULT_BOOTSTRAP,),
        show_default=True,
        show_envvar=True,
        callback=_check_bootstraps,
        help="A broker to ask; several of a cluster are separated by commas; may be repeated for further clusters.",
    )(function)


def registry_option(text: str, default: str | None = None) -> Callable[[F], F]:
    """``--registry URL``, as the parameter `registry`: a schema registry to ask, `default` if none is named. `text` is for what."""
    return click.option(
        "--registry",
        metavar="URL",
        type=TEXT,
        envvar=REGISTRY_VARIABLE,
        show_envvar=True,
        default=default,
        show_default=default is not None,
        help=text,
    )


def json_option(function: F) -> F:
    """``--json``, as the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(function)


def timeout_option(default_s: float) -> Callable[[F], F]:
    """``--timeout SECONDS``, as the parameter `timeout`."""
    return click.option(
        "--timeout",
        metavar="SECONDS",
        type=SECONDS,
        default=default_s,
        show_default=True,
        help="How long to wait for a broker before giving up.",
    )


def config_option(*names: str, help_: str) -> Callable[[F], F]:
    """A repeatable ``--config NAME=VALUE``; the parameter is a dict."""
    return click.option(*names, metavar="NAME=VALUE", type=TEXT, multiple=True, callback=_pairs, help=help_)


@contextmanager
def open_cluster(bootstrap: str, timeout_s: float = 10.0, make: "Callable[..., Cluster] | None" = None) -> "Iterator[Cluster]":
    """A client for one command, connected; `make` makes it. click.ClickException if no broker listens within `timeout_s`.

    An error of the block that is about an unknown topic or group gets a suggestion.
    """
    from moldau.cli.connecting import wait_for_broker
    from moldau.client.cluster import Cluster

    with (make or Cluster)(bootstrap, client_id="moldau-cli", timeout_s=timeout_s) as cluster:
        wait_for_broker(cluster)
        from moldau.cli.existing_names import suggesting

        with suggesting(cluster):
            yield cluster


def refuse_unknown_settings(admin: "Admin", resource: "AdminResource", names: Sequence[str]) -> None:
    """Brokers take the deletion of a setting that does not exist for done. Most often it is a typing error: refuse it, change nothing."""
    known = admin.setting_names(resource) if names else set()
    for name in names:
        if name not in known:
            raise click.ClickException(f"nothing was altered: {resource} has no setting {name}{did_you_mean(name, known)}")


def _check_bootstrap(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    from moldau.model.host_port import parse_addresses

    try:
        parse_addresses(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from error
    return value


def _check_bootstraps(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_check_bootstrap(ctx, parameter, value) for value in values))


def _pairs(ctx: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", ctx, parameter)
        if name.strip() in pairs:
            raise click.BadParameter(f"{name.strip()} is given twice", ctx, parameter)
        pairs[name.strip()] = value
    return pairs


OPTION = "--registry"
_UNKNOWN_PATH = (404, 405)
"""Codes of another server, which knows no path of a registry: a registry's own name what was not found, as 40401."""


def registry_source(ctx: click.Context) -> str:
    """The option of this command, the variable that stood for it, or the option's default, where it has one."""

    given = ctx.get_parameter_source("registry")
    if given is ParameterSource.DEFAULT and ctx.params["registry"] is not None:
        return f"the default of {OPTION}"
    return REGISTRY_VARIABLE if given is ParameterSource.ENVIRONMENT else OPTION


def check_registry_url(url: str, source: str) -> None:
    """click.BadParameter for what is no address of a registry."""
    from moldau.registry.rest_connection import parse_urls

    try:
        parse_urls(url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=source) from error


@contextmanager
def naming_source(source: str) -> Iterator[None]:
    """Errors of an address where no registry answers, or a broken one, name `source`; what a registry refuses (4xx) does not."""
    from moldau.registry.client_errors import RegistryError, RegistryUnavailableError

    try:
        yield
    except RegistryUnavailableError as error:
        raise RegistryUnavailableError(f"{error} (its address is from {source})") from error
    except RegistryError as error:
        if 400 <= error.status < 500 and error.code not in _UNKNOWN_PATH:
            raise
        raise RegistryError(error.status, error.code, f"{error.message.rstrip('.')}; the registry's address is from {source}") from error
