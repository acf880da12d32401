"""The schedule that `python -m flows deploy` is asked for, checked before a server is started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dynamicrubric.errors import UserError

if TYPE_CHECKING:
    from prefect.client.schemas.actions import DeploymentScheduleCreate

_EXAMPLE: Final = "--cron '0 2 * * *' --timezone Europe/Berlin"


def wanted_schedule(
    cron: str = "", timezone: str = "", *, paused: bool = False
) -> DeploymentScheduleCreate | None:
    """Return the schedule; None if none is asked for: those that are registered stay then.

    Args:
        cron: when the study is to run; empty for none.
        timezone: the schedule's time zone; empty for UTC.
        paused: register it switched off.

    Raises:
        UserError: it is not valid, or there is a time zone or a switch without a time.
    """
    if not cron:
        named = [*(["--timezone"] if timezone else []), *(["--paused"] if paused else [])]
        if named:
            raise UserError(
                doing="reading the schedule",
                got=f"{' and '.join(named)} without --cron, which says when",
                expected="--cron with it; schedules that are registered are changed on the "
                "deployment's page",
                remedy=f"for two o'clock each night: {_EXAMPLE}",
            )
        return None
    # Imported here: most commands need nothing of Prefect before their server runs.
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import CronSchedule

    zone = timezone or "UTC"
    try:
        schedule = CronSchedule(cron=cron, timezone=zone)
    except ValueError as error:
        raise UserError(
            doing="reading the schedule",
            got=f"{cron!r} in {zone!r} ({' '.join(str(error).split())})",
            expected="five fields (minute, hour, day, month, weekday) and a time zone",
            remedy=f"for two o'clock each night: {_EXAMPLE}",
        ) from None
    return DeploymentScheduleCreate(schedule=schedule, active=not paused)
