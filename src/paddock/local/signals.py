"""The signals that end a job, and signal dispositions inherited from the parent. Starts nothing."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.rendezvous.messages import Loss

ENDING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
# Ignored by Python itself, for itself; its children get the defaults (see spawn.py).
OF_PYTHON = ("SIGPIPE", "SIGXFSZ")
# By these the daemon of a submitted job (backends/node/daemon.py) tells the guardian that no user
# asked the job to end: it was killed itself, or the submitter of an attached job is gone.
# Behind those that from_guardian gives; libc and Python use none of them.
DAEMON_LOST, SUBMITTER_LOST = 62, 63
LOSSES: dict[int, Loss] = {DAEMON_LOST: "daemon", SUBMITTER_LOST: "submitter"}


def reset_signals() -> None:
    """Reset signals to their defaults; one that ends a job stays ignored if it was (nohup(1)).

    An ignored SIGCHLD, which exec(2) hands on, would reap our children before we can ask how
    they ended. Signals that were blocked are the caller's to unblock.
    """
    import signal

    kept = {getattr(signal, name, None) for name in (*ENDING, *OF_PYTHON)}
    for number in signal.valid_signals() - kept:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def forwarded_signals() -> set[int]:
    """Signals that the guardian hands on: those that end a job, less those our parent had ignored
    (nohup(1), sh -c 'cmd &'), and those that mean nothing to a launcher.
    """
    import signal

    wanted = {getattr(signal, name) for name in ENDING}
    kept: set[int] = {s for s in wanted if signal.getsignal(s) is not signal.SIG_IGN}
    return kept | {signal.SIGUSR1, signal.SIGUSR2, *LOSSES}


def from_guardian(number: int) -> int:
    """The signal by which the guardian forwards this one to the launcher.

    Another one: a batch system signals all processes of a job at once (scancel, slurmstepd), so
    the launcher gets both, and must not take it for asked twice. LOSSES are sent to the guardian
    alone, and go on as they are.
    """
    import signal

    return number if number in LOSSES else int(signal.SIGRTMIN) + number


def hold_signals() -> None:
    """Block the forwarded signals and SIGCHLD until ``take_signals``, and unblock all others."""
    import signal

    wanted = forwarded_signals()
    handed_on = {from_guardian(number) for number in wanted}
    signal.pthread_sigmask(signal.SIG_SETMASK, {*wanted, *handed_on, signal.SIGCHLD})


def take_signals() -> None:
    """Unblock the signals that ``hold_signals`` has blocked."""
    import signal

    signal.pthread_sigmask(signal.SIG_SETMASK, ())
