#!/usr/bin/env python3
"""Coverage-guided fuzzing of every decoder that takes outside bytes, with atheris (a test dependency).

    scripts/fuzz --minutes 10 [TARGET…]      all targets, or these, one after the other; what finds new lines goes to
                                             tests/fuzz/corpus, and a table shows the lines reached by module
    scripts/fuzz --coverage                  that table alone
    scripts/fuzz TARGET [FOLDER] [options]   one target with libFuzzer's options, such as -max_total_time=600
    scripts/fuzz --against kafka|HOST:PORT [--frames 2000] [--seed 1]
                                             the same odd requests to Ottla and to an Apache Kafka that is started for
                                             it, or to the broker there: same errors?

A crash leaves its input in a file: add it to the corpus with the fix.
"""

import argparse
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "src"))


def one_target(target: str, arguments: list[str]) -> int:
    try:
        import atheris
    except ImportError:
        print(
            "scripts/fuzz needs atheris, which is there for CPython up to 3.13 on Linux (x86-64): pip install atheris",
            file=sys.stderr,
        )
        return 2
    with atheris.instrument_imports(include=["ottla"]):
        from support.fuzzing.decoders import TARGETS
    if target not in TARGETS:
        print(f"there is no target {target}; there are: {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    folders = [argument for argument in arguments if not argument.startswith("-")]
    options = [argument for argument in arguments if argument.startswith("-")]
    atheris.Setup([sys.argv[0], *folders, str(CORPUS / target), *options], TARGETS[target])
    atheris.Fuzz()
    return 0


def for_minutes(minutes: float, wanted: list[str]) -> int:
    """Each target gets its share of the time. Only inputs that reach new lines stay in the corpus."""
    from support.fuzzing.coverage import keep
    from support.fuzzing.decoders import TARGETS

    targets = wanted or list(TARGETS)
    seconds = max(5, round(minutes * 60 / len(targets)))
    failed = []
    for target in targets:
        with tempfile.TemporaryDirectory(prefix="ottla-fuzz-") as folder:
            finds = Path(folder) / "finds"
            finds.mkdir()
            crash = f"-artifact_prefix={Path.cwd()}/crash-{target}-"
            print(f"{target}: {seconds} s", flush=True)
            command = [sys.executable, __file__, target]
            run = subprocess.run(
                [*command, str(finds), f"-max_total_time={seconds}", "-verbosity=0", crash],
                capture_output=True,
                text=True,
                check=False,
            )
            if run.returncode:
                failed.append(target)
                print(run.stderr[-2000:], flush=True)
            added = keep(target, finds, CORPUS)
            print(f"{target}: {added} inputs added, {len(list((CORPUS / target).iterdir()))} kept", flush=True)
    show_coverage()
    if failed:
        print(f"crashes in {', '.join(failed)}; the inputs are in crash-*", flush=True)
    return 1 if failed else 0


def show_coverage() -> int:
    from support.fuzzing.coverage import report

    print(report(CORPUS), flush=True)
    return 0


def against(address: str, frames: int, seed: int) -> int:
    from support.fuzzing.differential import compare
    from support.kafka import Kafka
    from support.processes import start_ottla

    with tempfile.TemporaryDirectory(prefix="ottla-fuzz-") as folder:
        started = Kafka(Path(folder) / "kafka", "auto.create.topics.enable=false") if address == "kafka" else None
        host, _, port = (started.bootstrap if started is not None else address).rpartition(":")
        broker = start_ottla(Path(folder) / "data", {"auto.create.topics.enable": False})
        try:
            found = compare(broker.address, (host or "127.0.0.1", int(port)), frames, seed)
        finally:
            broker.stop()
            if started is not None:
                started.stop()
    print("\n".join(found) or "no difference")
    return 1 if found else 0


def main() -> int:
    logging.getLogger("ottla").setLevel(logging.CRITICAL)  # otherwise every damaged input would log a line
    if len(sys.argv) > 1 and not sys.argv[1].startswith("--"):
        return one_target(sys.argv[1], sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--against", metavar="kafka|HOST:PORT")
    parser.add_argument("--frames", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("targets", nargs="*")
    arguments = parser.parse_args()
    if arguments.against:
        return against(arguments.against, arguments.frames, arguments.seed)
    if arguments.coverage:
        return show_coverage()
    if arguments.minutes is None:
        parser.print_help()
        return 2
    return for_minutes(arguments.minutes, arguments.targets)


if __name__ == "__main__":
    sys.exit(main())
