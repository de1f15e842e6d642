#!/usr/bin/env python3
"""Reads the dashboard with Grafana's own types (grafana-foundation-sdk), writes it again, and says what is not the same.

    monitoring/check-dashboard.py FILE

A key that Grafana's schema does not know gets lost, a value of another type fails. Exit code 1 if something differs.
"""

import json
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard


def differences(ours, theirs, path=""):
    """What of ours is missing in theirs, or another."""
    if isinstance(ours, dict):
        for key, value in ours.items():
            if not isinstance(theirs, dict) or key not in theirs:
                yield f"{path}/{key} is not known"
            else:
                yield from differences(value, theirs[key], f"{path}/{key}")
    elif isinstance(ours, list):
        if not isinstance(theirs, list) or len(ours) != len(theirs):
            yield f"{path} has another length"
        else:
            for number, pair in enumerate(zip(ours, theirs)):
                yield from differences(*pair, f"{path}[{number}]")
    elif ours != theirs:
        yield f"{path} is {ours!r} and becomes {theirs!r}"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        ours = json.load(file)
    theirs = json.loads(JSONEncoder().encode(Dashboard.from_json(ours)))
    found = list(differences(ours, theirs))
    print("\n".join(found) or f"{len(ours['panels'])} panels are as Grafana's schema has them")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
