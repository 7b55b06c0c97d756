"""A world made up by a seed: the very broker that ships, on a clock, a disk and a network that misbehave.

python -m runnel.sim --seeds 200          two hundred worlds, each with its own crashes
python -m runnel.sim --seed 4711          one of them again, event for event
"""
