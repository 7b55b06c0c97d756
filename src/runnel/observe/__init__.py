"""What operators see: metrics, the lag of groups, alerts. Cores without I/O."""
