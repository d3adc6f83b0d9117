"""Sets of allowed values. Their text is what error messages and the reference page show."""

from moldau.model.config.definition import INT_MAX, ConfigValue, Validator


class Between(Validator):
    """Numbers from `low` to `high`, both included; `also` is one more that has a meaning of its own."""

    __slots__ = ("also", "high", "low")

    def __init__(self, low: float, high: float | None = None, also: int | None = None) -> None:
        self.low = low
        self.high = high
        self.also = also

    def allows(self, value: ConfigValue) -> bool:
        """Whether the number lies in the range."""
        if not isinstance(value, int | float):
            return False
        return value == self.also or (value >= self.low and (self.high is None or value <= self.high))

    def __str__(self) -> str:
        high = "" if self.high is None else f",{self.high}"
        return f"[{self.low},...{high}]" + ("" if self.also is None else f" or {self.also}")


def at_least(low: int) -> Between:
    """Numbers from `low` up."""
    return Between(low)


class OneOf(Validator):
    """Texts, or truth values, of a short list."""

    __slots__ = ("choices",)

    def __init__(self, *choices: ConfigValue) -> None:
        self.choices = choices

    def allows(self, value: ConfigValue) -> bool:
        """Whether it is in the list."""
        return value in self.choices

    def __str__(self) -> str:
        return f"[{', '.join(str(choice).lower() if isinstance(choice, bool) else str(choice) for choice in self.choices)}]"


class SomeOf(Validator):
    """Lists whose items come from `choices`; perhaps none (KIP-1161)."""

    __slots__ = ("choices",)

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def allows(self, value: ConfigValue) -> bool:
        """Whether every item is a choice."""
        return isinstance(value, tuple) and all(item in self.choices for item in value)

    def __str__(self) -> str:
        return f"of [{', '.join(self.choices)}]"


class DifferentItems(Validator):
    """Lists of at least one text; none is empty, none comes twice."""

    __slots__ = ()

    def allows(self, value: ConfigValue) -> bool:
        """Whether items are there and differ."""
        return isinstance(value, tuple) and bool(value) and all(value) and len(set(value)) == len(value)

    def __str__(self) -> str:
        return "of different items, none empty"


class ThrottledReplicas(Validator):
    """``*``, or a list of ``partition:broker`` pairs, or nothing."""

    __slots__ = ()

    def allows(self, value: ConfigValue) -> bool:
        """Whether it is the star or every item is a pair of numbers."""
        return isinstance(value, tuple) and (value == ("*",) or all(_is_pair(item) for item in value))

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


class AddressLimits(Validator):
    """Texts ``address:number,...``, see `address_limits`."""

    __slots__ = ()

    def allows(self, value: ConfigValue) -> bool:
        """Whether it is such a text."""
        if not isinstance(value, str):
            return False
        try:
            address_limits(value)
        except ValueError:
            return False
        return True

    def __str__(self) -> str:
        return "of address:number,address:number,..."


class ZookeeperServers(Validator):
    """Texts ``host:port,host:port/chroot``, see `moldau.model.zookeeper_connect`."""

    __slots__ = ()

    def allows(self, value: ConfigValue) -> bool:
        """Whether it is such a text."""
        from moldau.model.zookeeper_connect import parse_connect

        try:
            return isinstance(value, str) and bool(parse_connect(value).servers)
        except ValueError:
            return False

    def __str__(self) -> str:
        return "of host:port,host:port,... and perhaps /chroot after the last"


def address_limits(text: str) -> dict[str, int]:
    """From ``address:number,...``, perhaps empty; an address of version 6 has colons of its own and may be in brackets. ValueError."""
    limits = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        address, _, number = (part.strip() for part in item.rpartition(":"))
        address = address.strip("[]")
        if not address or not (number.isascii() and number.isdigit()) or len(number) > 10 or int(number) > INT_MAX:
            raise ValueError(f"'{item}' is not address:number")
        limits[address] = int(number)
    return limits


def _is_pair(text: str) -> bool:
    partition, colon, broker = text.partition(":")
    return bool(colon) and partition.isdigit() and broker.isdigit()
