"""One consumer group of the newer protocol (KIP-848) with members of several makes that come and go."""
