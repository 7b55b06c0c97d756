"""Requests about the cluster: quotas, credentials, tokens, the quorum, and requests of nodes."""

from runnel.broker.apis.handlers import APIS, BROKER_APIS
from runnel.messages.add_raft_voter import AddRaftVoterRequest
from runnel.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from runnel.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from runnel.messages.api_versions import ApiVersionsRequest
from runnel.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from runnel.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from runnel.messages.describe_cluster import DescribeClusterRequest
from runnel.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from runnel.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from runnel.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from runnel.messages.expire_delegation_token import ExpireDelegationTokenRequest
from runnel.messages.registry import api
from runnel.messages.remove_raft_voter import RemoveRaftVoterRequest
from runnel.messages.renew_delegation_token import RenewDelegationTokenRequest
from runnel.messages.sasl_authenticate import SaslAuthenticateRequest
from runnel.messages.sasl_handshake import SaslHandshakeRequest
from runnel.messages.unregister_broker import UnregisterBrokerRequest
from runnel.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from runnel.security.acl import Operation, ResourceType
from tools.differential.admin import FEATURES
from tools.differential.authorization.data import BITS
from tools.differential.authorization.probe import Need, Probe, on_cluster, same
from tools.differential.comparison import Broker, BrokerPair

O = Operation  # noqa: E741 - shorter lines
OWNER = "one"
TOKEN_TIMES = "issue_timestamp expiry_timestamp max_timestamp token_id hmac"
NEW_TOKEN = "issue_timestamp_ms expiry_timestamp_ms max_timestamp_ms token_id hmac"


def set_up_tokens(pair: BrokerPair) -> None:
    """A delegation token of the super user."""
    responses = pair.begin(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3, OWNER).result()
    for broker, response in zip((pair.ours, pair.theirs), responses, strict=True):
        assert response.error_code == 0, response
        broker.token_hmac = bytes(response.hmac)
    pair.settle()


def cluster_probes() -> list[Probe]:
    """All of them."""
    describe, alter = (on_cluster(O.DESCRIBE),), (on_cluster(O.ALTER),)
    unchanged = "topics nodes"
    quorum = DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])])
    feature = FeatureUpdateKey("nonsense", 1)
    update = UpdateFeaturesRequest(feature_updates=[feature], validate_only=True)
    return [
        # Open to all. The others are for connections that are not authenticated yet.
        Probe(18, "ApiVersions", same(ApiVersionsRequest("a", "1")), (), has_all=False, ignore=FEATURES),
        Probe(17, "SaslHandshake", same(SaslHandshakeRequest("PLAIN")), (), has_all=False),
        Probe(36, "SaslAuthenticate", same(SaslAuthenticateRequest(b"\0a\0b")), (), has_all=False),
        *_quota_probes(),
        *_credential_probes(),
        *_token_probes(),
        Probe(55, "DescribeQuorum", same(quorum), describe, ignore=unchanged),
        Probe(57, "UpdateFeatures", same(update), alter),
        Probe(
            60,
            "DescribeCluster",
            same(DescribeClusterRequest(True)),
            describe,
            extra=BITS,
        ),
        Probe(64, "UnregisterBroker", same(UnregisterBrokerRequest(77)), alter),
        Probe(80, "AddRaftVoter", same(AddRaftVoterRequest(None, 1000, 7)), alter, has_all=False),
        Probe(81, "RemoveRaftVoter", same(RemoveRaftVoterRequest(None, 7)), alter, has_all=False),
        *(
            Probe(
                key,
                f"{api(key).name} to a broker",
                same(api(key).request()),
                (on_cluster(O.CLUSTER_ACTION),),
                closes=True,
            )
            for key in sorted(APIS.keys() - BROKER_APIS)
        ),
    ]


def _quota_probes() -> list[Probe]:
    entity = [EntityData("user", "unknown")]
    altering = AlterClientQuotasRequest([EntryData(entity, [OpData("producer_byte_rate", 1000.0)])], True)
    asking = DescribeClientQuotasRequest([ComponentData("user", 0, "unknown")])
    return [
        Probe(48, "DescribeClientQuotas", same(asking), (on_cluster(O.DESCRIBE_CONFIGS),)),
        Probe(49, "AlterClientQuotas", same(altering), (on_cluster(O.ALTER_CONFIGS),)),
    ]


def _credential_probes() -> list[Probe]:
    altering = AlterUserScramCredentialsRequest(
        [ScramCredentialDeletion("unknown", 1)],
        [ScramCredentialUpsertion("known", 1, 4096, b"salt" * 4, b"p" * 32)],
    )
    named = DescribeUserScramCredentialsRequest([UserName("unknown"), UserName("known")])
    # Not of all users: a denial of that is a bug in Kafka, which never responds.
    return [
        Probe(50, "DescribeUserScramCredentials", same(named), (on_cluster(O.DESCRIBE),)),
        Probe(51, "AlterUserScramCredentials", same(altering), (on_cluster(O.ALTER),)),
    ]


def _token_probes() -> list[Probe]:
    # Described before others are created, which are not visible everywhere at once.
    return [*_described_tokens(), *_created_tokens(), *_changed_tokens()]


def _described_tokens() -> list[Probe]:
    owners = [DescribeDelegationTokenOwner("User", name) for name in (OWNER, "unknown")]
    by_token = Need(O.DESCRIBE, ResourceType.DELEGATION_TOKEN, ("an unknown token",))
    by_user = Need(O.DESCRIBE_TOKENS, ResourceType.USER, ("User:unknown", f"User:{OWNER}"))
    named, every = DescribeDelegationTokenRequest(owners), DescribeDelegationTokenRequest(None)
    return [
        Probe(41, "DescribeDelegationToken", same(named), (by_user,), ignore=TOKEN_TIMES),
        Probe(41, "DescribeDelegationToken of all", same(every), (by_user, by_token), ignore=TOKEN_TIMES),
    ]


def _created_tokens() -> list[Probe]:
    renewers = [CreatableRenewers("Group", "renewers")]
    own = CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1)
    of_another = CreateDelegationTokenRequest("User", "unknown", max_lifetime_ms=-1)
    creating = Need(O.CREATE_TOKENS, ResourceType.USER, ("User:unknown",))
    return [
        Probe(38, "CreateDelegationToken", same(own), (), has_all=False),
        Probe(
            38,
            "CreateDelegationToken for another",
            same(of_another),
            (creating,),
            range(3, 4),
            ignore_served=NEW_TOKEN,
        ),
    ]


def _changed_tokens() -> list[Probe]:
    def renewed(broker: Broker, version: int) -> RenewDelegationTokenRequest:
        return RenewDelegationTokenRequest(broker.token_hmac, 1000)

    def expired(broker: Broker, version: int) -> ExpireDelegationTokenRequest:
        return ExpireDelegationTokenRequest(broker.token_hmac, 1000)

    renewing = same(RenewDelegationTokenRequest(b"unknown", 1000))
    expiring = same(ExpireDelegationTokenRequest(b"unknown", 1000))
    return [
        Probe(39, "RenewDelegationToken", renewed, (), has_all=False),
        Probe(39, "RenewDelegationToken, an unknown one", renewing, (), has_all=False),
        Probe(40, "ExpireDelegationToken", expired, (), has_all=False),
        Probe(40, "ExpireDelegationToken, an unknown one", expiring, (), has_all=False),
    ]
