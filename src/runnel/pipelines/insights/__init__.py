"""Traffic insights: throughput, skew, lag, and when disks fill up."""
