"""Deterministic simulation: the shipped broker on a simulated clock, disk and network with injected faults.

python -m runnel.sim --seeds 200          two hundred simulations, each with its own crashes
python -m runnel.sim --seed 4711          repeat one of them, event by event
"""
