"""One child of the supervisor of tiers: the process that is planned, and its line in the file of the state."""

import os

from moldau.adapters.supervised_child import SupervisedChild
from moldau.model.config.static import ENVIRONMENT_PREFIX
from moldau.tiers.processes import PlannedProcess
from moldau.tiers.state import TierProcess, log_of


class Child(SupervisedChild):
    """Its environment has no variable that is a setting: what it does is in the file of the tiers."""

    def __init__(self, planned: PlannedProcess, directory: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
        super().__init__(planned.words, log_of(directory, planned.name), environment, planned.says)
        self.planned = planned

    @property
    def state(self) -> TierProcess:
        """For the file."""
        planned = self.planned
        return TierProcess(planned.kind.value, planned.name, planned.address, self.identity, max(0, self.starts - 1), self.serves)
