"""`runnel pipeline run dead-letters`: inspect and redrive dead letters."""

from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.pipeline.options import JobOptions, job

if TYPE_CHECKING:
    from runnel.pipelines.dead_letters.job import DeadLetterOutcome

_VALUE_SHOWN = 70

Topics = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TOPIC]...",
        help="Dead-letter topics. Default: all topics ending in .dead-letters.",
        show_default=False,
    ),
]
Redrive = Annotated[
    bool, typer.Option("--redrive", help="Send the selected letters back to their source topics.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="With --redrive: only show what would be sent.")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Select by text in the reason.")]
Source = Annotated[str | None, typer.Option("--source", metavar="TOPIC", help="Select by source topic.")]
Pipeline = Annotated[str | None, typer.Option("--pipeline", metavar="NAME", help="Select by pipeline.")]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Select letters at or after this time: 2h (ago), or a time."
    ),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Select letters before this time.")
]
Offsets = Annotated[
    list[str] | None,
    typer.Option(
        "--offsets",
        metavar="PARTITION:FIRST-LAST",
        help="Select by offsets in the dead-letter topic. Repeatable.",
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Maximum number of letters to send.")]
MaxAttempts = Annotated[
    int | None,
    typer.Option("--max-attempts", min=1, help="Skip letters that were redriven this many times."),
]


@job(streams=False)
def dead_letters(
    options: JobOptions,
    topics: Topics = None,
    redrive: Redrive = False,
    dry_run: DryRun = False,
    reason: Reason = None,
    source: Source = None,
    pipeline: Pipeline = None,
    since: Since = None,
    until: Until = None,
    offsets: Offsets = None,
    limit: Limit = None,
    max_attempts: MaxAttempts = None,
) -> None:
    """Show dead letters by reason and source, with samples; --redrive sends the selected ones back.

    Each letter is redriven exactly once, across repeated and interrupted runs. It keeps its headers and gets
    the header runnel.redrive.attempt.

    Example: runnel pipeline run dead-letters

    Example: runnel pipeline run dead-letters orders.dead-letters --reason "not JSON" --redrive --dry-run
    """
    import time

    from runnel.pipelines.dead_letters.job import DeadLetterOptions, run
    from runnel.pipelines.dead_letters.letter_filter import LetterFilter, parse_offsets
    from runnel.server.cli.options import parse_moment_ms
    from runnel.server.cli.pipeline.running import run_job

    now_ms = round(time.time() * 1000)
    chosen = DeadLetterOptions(
        bootstrap=options.bootstrap,
        properties=options.properties,
        topics=tuple(topics or ()),
        choice=LetterFilter(
            reason=reason,
            source_topic=source,
            pipeline=pipeline,
            since_ms=None if since is None else parse_moment_ms(since, now_ms),
            until_ms=None if until is None else parse_moment_ms(until, now_ms),
            offsets=tuple(map(parse_offsets, offsets or ())),
            attempts_max=max_attempts,
        ),
        redrive=redrive,
        dry_run=dry_run,
        limit=limit,
    )
    run_job("dead-letters", options, lambda session, progress: run(session, chosen, progress), show=_show)


def _show(outcome: "DeadLetterOutcome") -> None:
    from runnel.server.cli.output import print_table, time_text

    print_table(
        ["letters", "redriven", "source", "reason", "last", "topic"],
        [
            (
                group.letters,
                group.redriven,
                group.source,
                group.kind,
                time_text(group.last_ms),
                group.topic,
            )
            for group in outcome.groups
        ],
        empty="no dead letters",
    )
    for group in outcome.groups:
        print(f"\n{group.source or 'unknown source'}: {group.kind}")
        for letter in group.samples:
            key = "-" if letter.key is None else letter.key.decode(errors="replace")
            value = "-" if letter.value is None else letter.value.decode(errors="replace")
            print(f"  {letter.partition}:{letter.offset}  {key}  {value[:_VALUE_SHOWN]}")
    verb = "would be redriven" if outcome.is_dry_run else "redriven"
    for each in outcome.redriven:
        targets = ", ".join(f"{count:,} to {topic}" for topic, count in sorted(each.by_target.items()))
        print(f"\n{each.topic}: {each.letters:,} {verb}" + (f" ({targets})" if targets else ""))
        for why, count in sorted(each.skipped.items()):
            print(f"  {count:,} skipped: {why}")
