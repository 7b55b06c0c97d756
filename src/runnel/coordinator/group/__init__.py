"""The group coordinator: groups of the classic protocol, those of the newer one (`consumer/`), and their offsets."""
