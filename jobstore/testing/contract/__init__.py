"""
The contract as a suite of tests, by phase of a job's life.
"""

from jobstore.testing.contract.arguments import ArgumentsContract
from jobstore.testing.contract.claim import ClaimContract
from jobstore.testing.contract.families import FamiliesContract
from jobstore.testing.contract.finish import FinishContract
from jobstore.testing.contract.instants import InstantsContract
from jobstore.testing.contract.leases import LeasesContract
from jobstore.testing.contract.levels import LevelsContract
from jobstore.testing.contract.operate import OperateContract
from jobstore.testing.contract.races import RacesContract
from jobstore.testing.contract.read import ReadContract
from jobstore.testing.contract.submit import SubmitContract
from jobstore.testing.contract.upkeep import UpkeepContract

__all__ = ["StoreContract"]


class StoreContract(
    SubmitContract,
    ClaimContract,
    FinishContract,
    LeasesContract,
    FamiliesContract,
    LevelsContract,
    OperateContract,
    ReadContract,
    UpkeepContract,
    InstantsContract,
    ArgumentsContract,
    RacesContract,
):
    """
    Proves that a store keeps what `jobstore.store` promises.

    Subclass it in a test module, with a fixture ``harness`` that gives a fresh
    `Harness` around an empty store:

        class TestMyStore(StoreContract):
            @pytest.fixture
            def harness(self) -> Iterator[Harness]:
                harness = MyHarness()
                yield harness
                harness.close()
    """
