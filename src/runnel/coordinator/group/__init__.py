"""The group coordinator: classic groups, consumer groups (`consumer/`), and committed offsets."""
