"""`python -m tools.twin OURS THEIRS`: two brokers on loopback ports, both fresh; prints where they differ."""

import sys

from tools.twin.interview import interview


def main() -> int:
    ours, theirs = map(int, sys.argv[1:3])
    questions = interview(ours, theirs)
    for found in questions.values():
        for difference in found[:3]:
            print(difference)
    different = sum(1 for found in questions.values() if found)
    print(f"{len(questions) - different} of {len(questions)} questions are answered alike")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
