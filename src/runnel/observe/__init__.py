"""What operators see of a cluster: metrics, lag, alerts. Cores without I/O and clock."""
