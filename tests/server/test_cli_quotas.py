"""`runnel quota` and `runnel tenant` against a broker without an authorizer."""

import pytest


def listed(run, *filters: str) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    rows = run.ok("quota", "list", *filters, "--json").json
    return {tuple(sorted(row["entity"].items())): row["quotas"] for row in rows}


def test_quotas_are_set_listed_and_removed(run, name):
    run.ok("quota", "set", "--user", name, "--producer-byte-rate", "50M", "--controller-mutation-rate", "2.5")
    run.ok("quota", "set", "--user", name, "--client-id", "app", "--consumer-byte-rate", "500K")
    run.ok("quota", "set", "--user", name, "--client-id-default", "--request-percentage", "25")
    pair, default = (("client-id", "app"), ("user", name)), (("client-id", None), ("user", name))
    assert listed(run, "--user", name) == {
        (("user", name),): {"producer_byte_rate": 50_000_000, "controller_mutation_rate": 2.5},
        pair: {"consumer_byte_rate": 500_000},
        default: {"request_percentage": 25},
    }
    assert listed(run, "--user", name, "--client-id", "app").keys() == {pair}
    table = run.ok("quota", "list", "--user", name)
    assert [name, "(default)", "-", "request_percentage", "25"] in [line.split() for line in table.lines]

    run.ok("quota", "remove", "producer_byte_rate", "--user", name)
    assert listed(run, "--user", name)[("user", name),] == {"controller_mutation_rate": 2.5}
    assert pair in listed(run), "quotas of the user with a client id are others"
    for arguments in ([], ["--client-id", "app"], ["--client-id-default"]):
        run.ok("quota", "remove", "--user", name, *arguments)
    assert listed(run, "--user", name) == {}


def test_quotas_of_addresses(run):
    run.ok("quota", "set", "--ip", "192.0.2.1", "--connection-creation-rate", "10")
    run.ok("quota", "set", "--ip-default", "--connection-creation-rate", "1000000")
    assert listed(run, "--ip-default") == {(("ip", None),): {"connection_creation_rate": 1_000_000}}
    run.ok("quota", "remove", "--ip-default")
    run.ok("quota", "remove", "--ip", "192.0.2.1")
    assert listed(run, "--ip", "192.0.2.1") == {}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["quota", "set", "--producer-byte-rate", "1M"], "whose quotas"),
        (["quota", "remove"], "whose quotas"),
        (["quota", "set", "--user", "u"], "nothing to set"),
        (["quota", "set", "--user", "u", "--producer-byte-rate", "fast"], "is not a rate"),
        (["quota", "set", "--user", "u", "--user-default", "--request-percentage", "1"], "exclude"),
        (["quota", "set", "--ip", "10.0.0.1", "--user", "u", "--request-percentage", "1"], "combined"),
        (["tenant", "create", "team a", "--principal", "User:u"], "is not made of"),
        (["tenant", "create", "a", "--principal", "User:u", "--prefix", ""], "is not made of"),
        (["tenant", "create", "a"], "Missing option"),
        (["tenant", "delete", "a"], "confirm with --yes"),
    ],
)
def test_usage_errors(run, arguments, expected):
    outcome = run(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert expected in outcome.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["quota", "set", "--ip", "nowhere", "--connection-creation-rate", "1"], "is not a valid IP"),
        (["quota", "set", "--user", "u", "--connection-creation-rate", "1"], "INVALID_REQUEST"),
        (["quota", "remove", "--user", "cli-unknown"], "user cli-unknown has no quotas"),
        (["quota", "remove", "request_percentage", "--user", "cli-unknown"], "no request_percentage"),
        (["tenant", "create", "a", "--principal", "alice"], "is not a principal of a user"),
        (["tenant", "create", "a", "--principal", "User:*"], "is not a principal of a user"),
        (["tenant", "create", "a", "--principal", "User:alice"], "the cluster has no authorizer"),
        (["tenant", "describe", "a"], "there is no tenant 'a'"),
        (["tenant", "delete", "a", "--yes"], "there is no tenant 'a'"),
    ],
)
def test_errors(run, arguments, expected):
    assert expected in run.fails(*arguments).err


def test_a_tenant_that_cannot_be_created_leaves_nothing(run):
    run.fails("tenant", "create", "a", "--principal", "User:tenant-user", "--producer-byte-rate", "1M")
    assert listed(run, "--user", "tenant-user") == {}
    assert run.ok("tenant", "list", "--json").json == []
