"""Validation and reachability of Spark masters."""

import socket

import pytest

from runnel.pipelines.errors import NoSpark
from runnel.pipelines.master import check_master, is_local, is_on_loopback


@pytest.mark.parametrize(
    "master",
    ["local", "local[*]", "local[4]", "local[2,3]", "local-cluster[2,1,1024]", "yarn", "k8s://https://x"],
)
def test_masters_that_need_no_asking(master):
    check_master(master)


@pytest.mark.parametrize(
    "master", ["", "lokal", "local[", "local[x]", "spark://host", "spark://:1,", "http://x:1"]
)
def test_what_is_no_master(master):
    with pytest.raises(NoSpark, match="is not a Spark master"):
        check_master(master)


def test_a_standalone_master_must_answer():
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        there, gone = listening.getsockname()[1], silent.getsockname()[1]
        check_master(f"spark://127.0.0.1:{there}")
        check_master(f"spark://127.0.0.1:{gone},127.0.0.1:{there}")
        with pytest.raises(NoSpark, match=f"no Spark master is reachable at .*{gone}.* refused"):
            check_master(f"spark://127.0.0.1:{gone}")
    with pytest.raises(NoSpark, match="no Spark master is reachable"):
        check_master("spark://127.0.0.1:99999")


def test_where_a_master_is():
    assert is_local("local[2]") and is_on_loopback("local[2]")
    assert not is_local("spark://127.0.0.1:7077") and is_on_loopback("spark://127.0.0.1:7077,localhost:7078")
    assert not is_on_loopback("spark://10.0.0.1:7077") and not is_on_loopback(
        "spark://127.0.0.1:1,10.0.0.1:2"
    )
    assert not is_on_loopback("yarn")
