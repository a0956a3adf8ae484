"""All commands under one name, and how they end: with a status, and an error in one line."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib import import_module

import click

from pyslot.cli.screen import own_version
from pyslot.errors import PyslotError

COMMANDS = {
    "doctor": "Check a server: will limits hold there, and what to do if not.",
    "top": "Watch the limits on a server: who is in flight, what is used.",
    "replay": "See what limits would have done to recorded traffic.",
    "scripts": "List, show, export or verify the Lua scripts.",
    "bench": "Measure what a permit costs on a server.",
    "demo": "See that limits hold, on servers of its own.",
}
"""Each is the object `command` of the module of its name, loaded when it is asked for."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # as above
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"pyslot.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # as above
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="A URL is what a Limiter takes, such as redis://localhost:6379. Where it is left out, PYSLOT_URL is taken.",
)
@click.version_option(own_version(), prog_name="pyslot", message="%(prog)s %(version)s")
def cli() -> None:
    """Shared limits for many processes, on a Redis or Valkey server."""


def run(args: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    # What a limiter would warn of is an error here, and said as one.
    logging.getLogger("pyslot").addHandler(logging.NullHandler())
    try:
        status = cli.main(args, prog_name="pyslot", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        usage = isinstance(error, click.UsageError) and error.ctx is not None
        hint = f" (see {error.ctx.command_path} --help)" if usage and error.ctx else ""  # type: ignore[attr-defined]
        return _fail(f"{error.format_message()}{hint}", error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (PyslotError, OSError) as error:
        return _fail(str(error), 2)
    return status if isinstance(status, int) else 0


def _fail(text: str, status: int) -> int:
    click.echo(f"Error: {' '.join(text.split())}", err=True)
    return status
