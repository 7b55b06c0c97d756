"""Functions for pipelines with mistakes."""


def doubled(orders):
    return orders.union(orders)
