"""The service of a controller that has not started yet: it returns the cluster id, if that is known."""

from runnel.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from runnel.messages.registry import FLEXIBLE_FROM
from runnel.ports.service import CloseConnection, Loan, Reply, Session
from runnel.wire import MalformedMessage, decode
from runnel.wire.frame import read_request_header, response_frame


class Greeting:
    """Serves DescribeCluster; any other request closes its connection, as if the node was not running.

    That includes ApiVersions: a node that negotiated now would not know the versions of a controller.
    """

    def __init__(self) -> None:
        self.cluster_id = ""
        """Empty while it is unknown."""

    def serve(
        self,
        buffer: memoryview,
        start: int,
        after: int,
        end: int,
        session: Session,
        replies: list[Reply],
        count_max: int,
    ) -> int:
        """Answer one request. Raises CloseConnection."""
        frame, kind = buffer[start:after], DescribeClusterRequest
        try:
            header = read_request_header(frame, FLEXIBLE_FROM)
            version = header.api_version
            if header.api_key != kind.api_key or version not in kind.versions:
                raise CloseConnection("")
            request = decode(kind, version, frame, header.body_position)
        except MalformedMessage as error:
            raise CloseConnection(str(error)) from error
        response = DescribeClusterResponse(endpoint_type=request.endpoint_type, cluster_id=self.cluster_id)
        parts = response_frame(response, version, header.correlation_id)
        reply = Reply()
        reply.fill(parts, sum(map(len, parts)))
        replies.append(reply)
        return after

    def finish_turn(self, loan: Loan | None = None) -> None:
        """Nothing is staged."""

    def ending(self) -> None:
        """No request waits."""

    def closed(self, session: Session) -> None:
        """Connections have no state."""
