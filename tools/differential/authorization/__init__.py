"""What clients receive that lack permissions: the same ACLs on both brokers, one user per set of them."""
