"""Functions that go wrong."""


def raises(orders):
    return orders.where(1 / 0)


def misses(orders):
    return orders.select("amont")


def returns(orders):
    return orders.columns
