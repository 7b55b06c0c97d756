"""`python -m tools.differential OURS THEIRS`: compares two new brokers on loopback ports."""

import sys

from tools.differential.cases import compare_brokers


def main() -> int:
    ours, theirs = map(int, sys.argv[1:3])
    cases = compare_brokers(ours, theirs)
    for found in cases.values():
        for difference in found[:3]:
            print(difference)
    different = sum(1 for found in cases.values() if found)
    print(f"{len(cases) - different} of {len(cases)} cases are answered alike")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
