from __future__ import annotations

import argparse
import datetime
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "studies.md"
STUDIES = ("imputation", "densities", "forecasts", "truths", "completion")
_ABOUT = """Written by `python -m studies --write`; `make studies` installs the peers and runs it.

Each line is one run with one seed: a difference between two methods on one table or series may be chance,
and the lines about all of them, with standard errors over tables or series, are what to read.  The bold
number of a line is the least."""


def kept(name: str) -> Path:
    """Where the numbers of a study are."""
    return Path(__file__).with_name(f"{name}.json")


def numbers(name: str) -> dict[str, Any]:
    """What is kept of a study so far."""
    return json.loads(kept(name).read_text("utf-8")) if kept(name).exists() else {}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m studies", description="Quality beside the peers.")
    parser.add_argument("study", choices=STUDIES, nargs="?", help="which; all by default")
    parser.add_argument("--only", action="append", help="one table or series; may be repeated")
    parser.add_argument("--quick", action="store_true", help="few rows, to see that everything runs")
    parser.add_argument("--write", action="store_true", help=f"keep the numbers, and write {PAGE.name}")
    options = parser.parse_args()
    if options.write and options.quick:
        parser.error("--write is for whole tables and series")
    for name in [options.study] if options.study else STUDIES:
        module = importlib.import_module(f".{name}", __package__)
        data = module.SERIES if name == "forecasts" else module.TABLES
        found = numbers(name) if options.write else {}
        for one in options.only or data:
            started = time.perf_counter()
            found[one] = module.study(one, quick=options.quick, kept=found.get(one))
            found[one]["day"] = datetime.date.today().isoformat()
            print(f"{one}: {time.perf_counter() - started:.0f} s {json.dumps(found[one])}", flush=True)
            if options.write:
                kept(name).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print("\n".join(module.report({one: found[one] for one in data if one in found})))
    if options.write:
        write()
    return 0


def _ours(methods: dict[str, Any]) -> bool:
    """Whether a density of the library is among what was measured."""
    return "freeenergy" in methods or "columns apart" in methods


def write() -> None:
    """The page of the documentation, from all numbers that are kept."""
    lines = ["# Beside other libraries, on public data", "", *_ABOUT.splitlines(), ""]
    for name in STUDIES:
        found = numbers(name)
        if not found:
            continue
        module = importlib.import_module(f".{name}", __package__)
        title, _, text = (module.__doc__ or "").partition("\n\n")
        data = module.SERIES if name == "forecasts" else module.TABLES
        days = sorted({result["day"] for result in found.values()})
        lines += [f"## {title}", "", text.strip(), ""]
        # of some tables only the peers may be kept
        whole = [one for one in data if one in found and _ours(found[one]["methods"])]
        left = [one for one in data if one not in whole]
        told = f"; {', '.join(left)} are not measured yet" if left else ""
        lines += [f"Measured on {' and '.join(days)}, {len(whole)} of {len(data)}{told}.", ""]
        lines += [*module.report({one: found[one] for one in data if one in found}), ""]
    PAGE.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
