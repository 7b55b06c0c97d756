"""The Spark cluster on loopback, which tests share with the tools."""

from tools.spark_cluster import Cluster, running_cluster

__all__ = ["Cluster", "running_cluster"]
