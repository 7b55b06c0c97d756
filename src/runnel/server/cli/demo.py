"""`runnel demo`"""


def demo() -> None:
    """x"""
