"""Addresses of the HTTP door, and the host names it accepts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.doors.tcp_door import (
    HTTP,
    Address,
    allowed_names,
    check_reach,
    format_address,
    is_allowed_host,
    is_allowed_origin,
    parse_address,
)
from palaver.errors import BadRequest

_hosts = st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True) | st.ip_addresses().map(str)
LOOPBACK = Address("127.0.0.1", 7420)


@given(st.builds(Address, _hosts, st.integers(0, 65535)))
def test_address_survives_being_written_and_read_back(address: Address) -> None:
    assert parse_address(format_address(address)) == address


@pytest.mark.parametrize(
    ("written", "address"),
    [
        (HTTP.default, LOOPBACK),
        ("8080", Address("127.0.0.1", 8080)),
        ("localhost", Address("localhost", 7420)),
        ("[::1]:80", Address("::1", 80)),
        (" 0.0.0.0:1 ", Address("0.0.0.0", 1)),
    ],
)
def test_host_or_port_may_be_left_out(written: str, address: Address) -> None:
    assert parse_address(written) == address


@pytest.mark.parametrize("written", ["", ":", "a:b", "1.2.3.4:70000", "http://x:1", "a b:1", "::1:80"])
def test_invalid_address_is_refused(written: str) -> None:
    with pytest.raises(BadRequest, match="HOST:PORT"):
        parse_address(written)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_address_needs_no_option(host: str) -> None:
    check_reach(Address(host, 1), is_remote=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", "localhost.example.org"])
def test_remote_address_needs_the_remote_option(host: str) -> None:
    with pytest.raises(BadRequest, match="--http-remote"):
        check_reach(Address(host, 1), is_remote=False)

    check_reach(Address(host, 1), is_remote=True)


@pytest.mark.parametrize("header", ["127.0.0.1", "localhost:7420", "LOCALHOST:1", "[::1]:7420"])
def test_names_of_this_machine_are_allowed(header: str) -> None:
    names = allowed_names(LOOPBACK, "")

    assert is_allowed_host(header, names)
    assert is_allowed_origin(f"http://{header}", header, names)
    assert not is_allowed_origin(f"http://{header}9", header, names)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "evil.com",
        "localhost.evil.com",
        "127.0.0.1@evil.com",
        "evil.com/localhost",
        "localhost:x",
        "[::1",
        "[v1.x]",
    ],
)
def test_other_names_are_refused(header: str) -> None:
    names = allowed_names(LOOPBACK, "")

    assert not is_allowed_host(header, names)
    assert not is_allowed_origin(f"http://{header}", header, names)


def test_names_can_be_added_and_an_address_allows_its_own_host() -> None:
    assert is_allowed_host("box.lan:80", allowed_names(Address("0.0.0.0", 1), "box.lan, other"))
    assert is_allowed_host("10.0.0.7", allowed_names(Address("10.0.0.7", 1), ""))
    assert not is_allowed_host("0.0.0.0", allowed_names(Address("0.0.0.0", 1), ""))


def test_origin_must_be_a_web_page() -> None:
    assert not is_allowed_origin("null", "null", allowed_names(LOOPBACK, ""))
    assert not is_allowed_origin("file://localhost", "localhost", allowed_names(LOOPBACK, ""))


@given(st.text(), st.text())
def test_any_header_can_be_checked(host: str, more: str) -> None:
    names = allowed_names(LOOPBACK, more)

    assert is_allowed_host(host, names) in (True, False)
    assert is_allowed_origin(f"http://{host}", host, names) in (True, False)
