"""The group coordinator: classic groups, those of the newer protocol (`consumer/`), and their offsets."""
