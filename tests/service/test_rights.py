"""Who is an admin, how often a password or an action may be tried, and what is kept of those who try."""

import pytest

from cosyui.errors import CosyuiError, SetupError
from cosyui.service import rights as module
from cosyui.service.rights import Rights, is_loopback
from cosyui.settings import Settings

HOME, AWAY, TAB = "127.0.0.1", "192.0.2.7", "t4bt4bt4b"


class Time:
    """A clock that goes when it is told to."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def rights(clock):
    """A function that makes rights by settings; an admin password unless told otherwise."""

    def make(**settings):
        return Rights(Settings.load({"admin_password": "open sesame"} | settings, {}), clock)

    return make


def attempts(one, count, address=AWAY, password="wrong"):
    """Outcomes of tries to unlock: True, False, or the code of a refusal."""
    found = []
    for _ in range(count):
        try:
            found.append(one.unlock(TAB, address, password))
        except CosyuiError as error:
            found.append(error.code)
    return found


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("192.0.2.7", False),
        ("::ffff:192.0.2.7", False),
        ("2001:db8::1", False),
        ("localhost", False),
        ("unproven", False),
        ("", False),
    ],
)
def test_without_a_password_admins_are_those_at_the_machine(rights, address, inside):
    one = rights(admin_password="")
    assert is_loopback(address) == one.is_admin(TAB, address) == inside
    assert not one.unlock(TAB, address, "")
    if inside:
        one.check_action(TAB, address)
    else:
        with pytest.raises(CosyuiError, match="COSYUI_ADMIN_PASSWORD") as caught:
            one.check_action(TAB, address)
        assert (caught.value.code, caught.value.status) == ("admin_only", 403)


def test_with_a_password_only_it_counts(rights):
    one = rights()
    assert not one.is_admin(TAB, HOME)
    assert attempts(one, 1) == [False]
    assert attempts(one, 1, password="open sesame") == [True]
    assert one.is_admin(TAB, AWAY)
    assert not one.is_admin(TAB, HOME), "the same tab from somewhere else"
    assert not one.is_admin("another", AWAY)
    one.lock(TAB)
    assert not one.is_admin(TAB, AWAY)


@pytest.mark.parametrize("session", ["", "none", "ab"])
def test_a_session_that_anybody_could_have_is_never_unlocked(rights, session):
    one = rights()
    assert not one.unlock(session, AWAY, "open sesame")
    assert not one.is_admin(session, AWAY)


def test_unlocked_sessions_end_and_are_bounded(rights, clock):
    one = rights()
    for number in range(module.UNLOCKED + 5):
        assert one.unlock(f"session {number}", AWAY, "open sesame")
    assert len(one._unlocked) == module.UNLOCKED
    assert not one.is_admin("session 4", AWAY)
    assert one.is_admin("session 5", AWAY)
    clock.now += module.UNLOCKED_SECONDS - 1
    assert one.is_admin("session 5", AWAY)
    clock.now += 1
    assert not one.is_admin("session 5", AWAY)


def test_five_wrong_passwords_of_an_address(rights, clock):
    one = rights()
    assert attempts(one, 7) == [False] * 5 + ["too_many_passwords"] * 2
    assert attempts(one, 1, password="open sesame") == ["too_many_passwords"]
    assert attempts(one, 1, "192.0.2.8", "open sesame") == [True], "another address"
    with pytest.raises(CosyuiError, match="in 12 seconds") as caught:
        one.unlock(TAB, AWAY, "open sesame")
    assert caught.value.status == 429
    clock.now += 12
    assert attempts(one, 1, password="open sesame") == [True]
    assert attempts(one, 2) == [False, "too_many_passwords"], "the right one cost nothing"


def test_thirty_wrong_passwords_of_all(rights, clock):
    one = rights()
    found = [attempts(one, 1, f"192.0.2.{number}")[0] for number in range(40)]
    assert found == [False] * 30 + ["too_many_passwords"] * 10
    clock.now += 60
    assert attempts(one, 1, "192.0.2.1", "open sesame") == [True]


def test_who_tries_is_forgotten(rights, clock, monkeypatch):
    monkeypatch.setattr(module, "WRONG_OF_ALL", 10_000)
    one = rights()
    for number in range(module.REMEMBERED + 50):
        attempts(one, 1, f"2001:db8::{number:x}")
    assert len(one._wrong) == module.REMEMBERED


def test_actions_of_a_session(rights, clock):
    one = rights(admin_password="")
    for _ in range(30):
        one.check_action(TAB, HOME)
    with pytest.raises(CosyuiError, match="in 2 seconds") as caught:
        one.check_action(TAB, HOME)
    assert (caught.value.code, caught.value.status) == ("too_many_actions", 429)
    one.check_action("another tab", HOME)
    clock.now += 2
    one.check_action(TAB, HOME)


def test_log_tells_who_was_refused_and_no_secret(rights, caplog):
    caplog.set_level("INFO", logger="cosyui")
    one = rights()
    attempts(one, 500, password="my other password")
    attempts(one, 1, "192.0.2.9", "open sesame")
    with pytest.raises(CosyuiError):
        one.check_action("another session", AWAY)
    lines = [(record.getMessage(), record.fields) for record in caplog.records]
    assert {event for event, _ in lines} >= {"password_wrong", "password_not_looked_at", "admin_unlocked"}
    assert {fields["address"] for _, fields in lines} == {AWAY, "192.0.2.9"}
    assert len(lines) <= 70
    assert not any(word in str(lines) for word in ("sesame", "other password", TAB))


@pytest.mark.parametrize(
    ("ops", "guest", "admin"), [("all", True, True), ("admin", False, True), ("off", False, False)]
)
def test_who_sees_the_ops_tab(rights, ops, guest, admin):
    one = rights(ops=ops)
    one.unlock(TAB, AWAY, "open sesame")
    assert (one.sees_ops("another", AWAY), one.sees_ops(TAB, AWAY)) == (guest, admin)


@pytest.mark.parametrize(
    ("name", "password", "right"),
    [
        ("ann", "secret", True),
        ("bob", "with:colon", True),
        ("李", "密码", True),
        ("ann", "with:colon", False),
        ("ann", "", False),
        ("", "", False),
        ("ann\udc80", "secret", False),
    ],
)
def test_names_and_passwords_of_the_page(rights, name, password, right):
    one = rights(login="ann:secret, bob:with:colon,李:密码")
    assert one.login_needed
    assert one.login(name, password) is right
    assert not rights().login_needed
    assert not rights().login("ann", "secret")


@pytest.mark.parametrize("given", ["ann", "ann:", ":secret", "ann:secret,", "ann:hunter2,bob"])
def test_wrong_pairs_are_refused_without_telling_them(given):
    with pytest.raises(SetupError, match="COSYUI_LOGIN") as caught:
        Settings.load({}, {"COSYUI_LOGIN": given})
    assert "name:password" in caught.value.message
    assert "hunter2" not in caught.value.message


def test_secrets_are_masked():
    settings = Settings.load({"login": "ann:hunter2", "admin_password": "hunter3"}, {})
    assert "hunter" not in f"{settings.table()} {settings!r}"
