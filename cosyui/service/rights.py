"""Who may do what: logs in to the page, sees and uses the ops tab; and how often a password may be tried."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable

from cosyui.errors import RightsError, TooManyError
from cosyui.ops.logs import log
from cosyui.settings import Settings

logger = logging.getLogger(__name__)

Clock = Callable[[], float]
MINUTE = 60.0
WRONG_OF_ADDRESS, WRONG_OF_ALL = 5, 30
"""Wrong passwords a minute."""
ACTIONS = 30
"""Of a browser session, a minute."""
UNLOCKED, UNLOCKED_SECONDS = 300, 12 * 3600.0
"""Browser sessions of admins at most, and how long each stays one."""
REMEMBERED = 1000
"""Addresses and sessions whose attempts are counted; who is forgotten begins anew, within what all may."""
UNPROVEN = "unproven"
"""The address of someone who seems to be at this machine, but may be anywhere."""
SHORTEST_SESSION = 6
"""A browser session with a shorter name could be anybody's."""


class Bucket:
    """``amount`` tokens that come back evenly within ``seconds``."""

    def __init__(self, amount: int, clock: Clock, seconds: float = MINUTE) -> None:
        self._amount = amount
        self._rate = amount / seconds
        self._clock = clock
        self._tokens = float(amount)
        self._since = clock()

    def wait(self) -> float:
        """Seconds until there is a token; 0 if there is one now."""
        now = self._clock()
        self._tokens = min(self._amount, self._tokens + (now - self._since) * self._rate)
        self._since = now
        return max(0.0, (1 - self._tokens) / self._rate) if self._tokens < 1 - 1e-9 else 0.0

    def take(self) -> None:
        self._tokens -= 1

    def give_back(self) -> None:
        self._tokens += 1


class Buckets:
    """One for each name, those used last."""

    def __init__(self, amount: int, clock: Clock) -> None:
        self._amount = amount
        self._clock = clock
        self._by_name: OrderedDict[str, Bucket] = OrderedDict()

    def of(self, name: str) -> Bucket:
        bucket = self._by_name.setdefault(name, Bucket(self._amount, self._clock))
        self._by_name.move_to_end(name)
        if len(self._by_name) > REMEMBERED:
            self._by_name.popitem(last=False)
        return bucket

    def __len__(self) -> int:
        return len(self._by_name)


class Rights:
    """Of one server; on one event loop.

    ``address`` is that of the client, ``session`` the browser tab's random name. Passwords are bounded for the page's
    login and the admin's together.
    """

    def __init__(self, settings: Settings, clock: Clock = time.monotonic) -> None:
        self._logins = settings.logins
        self._admin_password = settings.admin_password.get_secret_value()
        self._ops = settings.ops
        self._clock = clock
        self._unlocked: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._wrong_of_all = Bucket(WRONG_OF_ALL, clock)
        self._wrong = Buckets(WRONG_OF_ADDRESS, clock)
        self._actions = Buckets(ACTIONS, clock)
        self._lines = Bucket(2 * WRONG_OF_ALL, clock)

    @property
    def login_needed(self) -> bool:
        """The page is for those with a name and a password."""
        return bool(self._logins)

    @property
    def password_set(self) -> bool:
        """Admins are those that gave the password; else those at this machine."""
        return bool(self._admin_password)

    def login(self, name: str, password: str) -> bool:
        """Whether they belong together; takes the same time for every name. `begin_attempt` before."""
        return sum(same(name, known) & same(password, right) for known, right in self._logins.items()) > 0

    def begin_attempt(self, address: str) -> None:
        """Before a password is looked at: it counts as a wrong one until `end_attempt` says otherwise.

        Raises:
            TooManyError: ``too_many_passwords``; not even the right one is taken now.
        """
        buckets = self._wrong.of(address), self._wrong_of_all
        wait = max(bucket.wait() for bucket in buckets)
        if wait > 0:
            self._refused("password_not_looked_at", address)
            seconds = math.ceil(wait)
            message = (
                f"Too many wrong passwords. Try again in {seconds} seconds; until then even the right one is refused."
            )
            raise TooManyError("too_many_passwords", message)
        for bucket in buckets:
            bucket.take()

    def end_attempt(self, address: str, *, right: bool) -> None:
        """How the attempt came out."""
        if not right:
            self._refused("password_wrong", address)
            return
        for bucket in (self._wrong.of(address), self._wrong_of_all):
            bucket.give_back()

    def unlock(self, session: str, address: str, password: str) -> bool:
        """Make this browser session one of an admin, from this address alone; False for a wrong password.

        Raises:
            TooManyError: ``too_many_passwords``.
        """
        if not self.password_set or len(session) < SHORTEST_SESSION:
            return False
        self.begin_attempt(address)
        right = same(password, self._admin_password)
        self.end_attempt(address, right=right)
        if right:
            self._unlocked[session] = address, self._clock() + UNLOCKED_SECONDS
            self._unlocked.move_to_end(session)
            if len(self._unlocked) > UNLOCKED:
                self._unlocked.popitem(last=False)
            log(logger, logging.INFO, "admin_unlocked", address=address, session=session[:4])
        return right

    def lock(self, session: str) -> None:
        """It is no admin's any more."""
        self._unlocked.pop(session, None)

    def is_admin(self, session: str, address: str) -> bool:
        if not self.password_set:
            return is_loopback(address)
        where, until = self._unlocked.get(session, ("", 0.0))
        if where and until <= self._clock():
            self.lock(session)
            return False
        return bool(where) and where == address

    def sees_ops(self, session: str, address: str) -> bool:
        return self._ops == "all" or (self._ops == "admin" and self.is_admin(session, address))

    @property
    def refusal(self) -> RightsError:
        """What who is no admin is told."""
        if self.password_set:
            return RightsError("admin_only", "This is for admins. Unlock the actions with the admin password first.")
        message = (
            "This is for admins: without a password only whoever opens the page on the server's own machine. "
            "Set COSYUI_ADMIN_PASSWORD and start the service again."
        )
        return RightsError("admin_only", message)

    def check_action(self, session: str, address: str) -> None:
        """Before anything of the ops tab is done.

        Raises:
            RightsError: ``admin_only``.
            TooManyError: ``too_many_actions``.
        """
        if not self.is_admin(session, address):
            self._refused("action_refused", address)
            raise self.refusal
        bucket = self._actions.of(session)
        wait = bucket.wait()
        if wait > 0:
            self._refused("action_too_many", address)
            raise TooManyError("too_many_actions", f"Too many actions. Try again in {math.ceil(wait)} seconds.")
        bucket.take()

    def _refused(self, event: str, address: str) -> None:
        """A line in the log; not without limit, for whoever floods the service would flood the disk, too."""
        if self._lines.wait() == 0:
            self._lines.take()
            log(logger, logging.WARNING, event, address=address)


def same(given: str, right: str) -> bool:
    """In a time that tells nothing of either."""
    digests = (hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (given, right))
    return hmac.compare_digest(*digests)


def is_loopback(address: str) -> bool:
    """Whether whoever has this address sits at the machine itself."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback
