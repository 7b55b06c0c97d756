"""Small files beside a log, such as quorum-state."""

from random import Random

import pytest

from runnel.disk.state_files import StateFilesOnDisk
from runnel.sim.files import SimFiles


@pytest.mark.parametrize("seed", range(10))
def test_a_file_in_a_folder_that_was_just_created_survives_a_power_cut(seed: int) -> None:
    files = SimFiles()
    files.make_folder("/data")
    files.sync_folder("/")
    files.make_folder("/data/__cluster_metadata-0")
    StateFilesOnDisk(files, "/data/__cluster_metadata-0").write("quorum-state", b"a vote")
    files.lose_power(Random(seed))
    assert StateFilesOnDisk(files, "/data/__cluster_metadata-0").read("quorum-state") == b"a vote"
