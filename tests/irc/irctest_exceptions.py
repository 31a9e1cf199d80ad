"""The tests of irctest that the IRC door does not pass, each with a reason.

A key is a module, class and test, with the parameters in brackets; a key that ends with `*` covers all tests
that begin like it. A test that is not named here must pass. A test that is named here must fail or be skipped
with the expected text, so that another fault of the same test is noticed.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Allowed:
    """Why a test does not pass."""

    says: str
    """A part of the text that irctest prints for it."""
    because: str


_NAME: Final = Allowed(
    "My.Little.Server", "The server is always named pal, and irctest expects its own name."
)
_NO_OPERATOR: Final = (
    "The prefix @ is for agents with the role operator: a client that creates a channel has no rights in it."
)
_OPER: Final = Allowed("OPER failed", "There is no OPER: the rights of a client are those of its account.")
_USERHOST: Final = Allowed("userhost-in-names", "userhost-in-names is not a capability of the door.")
_TOPIC: Final = "There is no mode t: each client that may write in a channel can set its topic."
_PLAYBACK: Final = Allowed(
    "draft/event-playback", "draft/event-playback is not a capability of the door: history has messages only."
)
_TARGMAX: Final = "TARGMAX is not in our 005, which has MAXTARGETS=4. irctest knows TARGMAX only."
_ONE_PASSWORD: Final = Allowed(
    "wrong name or password",
    "The test gives two accounts the same password. A token belongs to one account, whose name is the nick.",
)
_ELIST: Final = "ELIST is not in our 005: LIST has no filters."
_TWO_LINES: Final = (
    "A text that fits into the line of its sender, but not with the source in front, is delivered whole, as "
    "two lines. irctest expects that it is refused or cut."
)
_MODES: Final = (
    "Modes can only be read: no client can make itself or a channel invisible, or close a channel."
)
_NAMES: Final = Allowed(
    "got 366",
    "NAMES without a channel lists nothing, as modern.ircdocs.horse allows: LIST shows the channels.",
)
_EXTENDED_MONITOR: Final = Allowed("extended-monitor", "extended-monitor is not a capability of the door.")
_AGAIN: Final = Allowed(
    "SASL_AFTER_REGISTRATION",
    "The account of a connection never changes: a client logs in when it registers.",
)
_SCRAM: Final = Allowed("SCRAM-SHA-256", "PLAIN is the only mechanism: only hashes of the tokens are stored.")
_ERGO_LIMITS: Final = "The test expects the limits of another server; ours are 4,096 lines and 1 MiB."
_IN_IRCTEST: Final = Allowed("Not consistently implemented", "irctest skips this test for every server.")

EXCEPTIONS: Final[dict[str, Allowed]] = {
    "account_tag.AccountTagTestCase.testInvite": Allowed(
        "NoMessageException", "There is no INVITE: every channel is open to every client."
    ),
    "buffering.BufferingTestCase.testNoTags*": Allowed("PRIVMSG nick2 :aaaa", _TWO_LINES),
    "cap.CapTestCase.testReqTwo": _USERHOST,
    "cap.CapTestCase.testReqOneThenOne": _USERHOST,
    "cap.CapTestCase.testReqPostRegistration": _USERHOST,
    "chathistory.ChathistoryTestCase.testChathistoryEventPlayback*": _PLAYBACK,
    "chathistory.ChathistoryTestCase.testChathistoryTagmsg": _PLAYBACK,
    "chathistory.ChathistoryTestCase.testChathistoryDMClientOnlyTags": Allowed(
        "KeyError: '+client-only-tag-test'",
        "A message to a registered person is read from the log, which does not keep the tags of a client.",
    ),
    "connection_registration.ConnectionRegistrationTestCase.testConnectionRegistration": _NAME,
    "isupport.IsupportTestCase.testTargmax": Allowed("TARGMAX", _TARGMAX),
    "labeled_responses.LabeledResponsesTestCase.testLabeledPrivmsgResponsesToMultipleClients": Allowed(
        "MULTI_PRIVMSG", _TARGMAX
    ),
    "list.ListTestCase.testListEmpty": Allowed("at least) one channel", "LIST always has #general."),
    "list.ListTestCase.testListOne": Allowed("at least) two channels", "LIST always has #general."),
    "list.ListTestCase.testListMask": Allowed("ELIST_M", _ELIST),
    "list.ListTestCase.testListNotMask": Allowed("ELIST_N", _ELIST),
    "list.ListTestCase.testListUsers": Allowed("ELIST_U", _ELIST),
    "list.FaketimeListTestCase.testListCreationTime": Allowed("ELIST_C", _ELIST),
    "list.FaketimeListTestCase.testListTopicTime": Allowed("ELIST_T", _ELIST),
    "message_tags.MessageTagsTestCase.testLengthLimits": Allowed("'PRIVMSG' == '417'", _TWO_LINES),
    "messages.NoCTCPModeTestCase.testNoCTCPMode": Allowed(
        "IndexError", "CTCP other than ACTION is not a message, and is passed on to no client."
    ),
    "monitor.ExtendedMonitorTestCase.*": _EXTENDED_MONITOR,
    "monitor.AuthenticatedExtendedMonitorTestCase.*": _EXTENDED_MONITOR,
    "multiline.MultilineTestCase.testLineLimit": Allowed("NoMessageException", _ERGO_LIMITS),
    "multiline.MultilineTestCase.testByteLimit": Allowed("NoMessageException", _ERGO_LIMITS),
    "names.NamesTestCase.testNames1459": Allowed("@nick1", _NO_OPERATOR),
    "names.NamesTestCase.testNames2812": Allowed("@nick1", _NO_OPERATOR),
    "names.NamesTestCase.testNamesModern": Allowed("@nick1", _NO_OPERATOR),
    "names.NamesTestCase.testNames2812Secret": Allowed("@nick1", _MODES),
    "names.NamesTestCase.testNamesMultipleChannels1459": Allowed("MULTI_NAMES_COMMAND", _TARGMAX),
    "names.NamesTestCase.testNamesMultipleChannels2812": Allowed("MULTI_NAMES_COMMAND", _TARGMAX),
    "names.NamesTestCase.testNamesNoArgument*": _NAMES,
    "pingpong.PingPongTestCase.testPing": _NAME,
    "sasl.SaslTestCase.testScramSha256Success": _SCRAM,
    "sasl.SaslTestCase.testScramSha256Failure": _SCRAM,
    "sasl.SaslTestCase.testPlainPostRegistration": _AGAIN,
    "sasl.SaslTestCase.testPlainPostRegistrationAndReAuthenticate": _AGAIN,
    "sasl.SaslTestCase.testPlainReAuthenticate": _AGAIN,
    "topic.TopicTestCase.testTopicMode": Allowed("was not refused use of TOPIC", _TOPIC),
    "topic.TopicPrivilegesTestCase.testTopicPrivileges": Allowed("'482' not in", _MODES),
    "utf8.ErgoUtf8NickEnabledTestCase.testUtf8NonAsciiNick": Allowed(
        "ConnectionClosed",
        "A nick has ASCII characters only, like the name of an agent: names cannot look alike.",
    ),
    "who.WhoTestCase.testWhoStar": _NAME,
    "who.WhoTestCase.testWhoNick[exact]": Allowed("'H@'", _NO_OPERATOR),
    "who.WhoTestCase.testWhoNick[casefolded]": Allowed("'H@'", _NO_OPERATOR),
    "who.WhoTestCase.testWhoNick[mask]": _NAME,
    "who.WhoTestCase.testWhoNickAway[exact]": Allowed("'G@'", _NO_OPERATOR),
    "who.WhoTestCase.testWhoNickAway[casefolded]": Allowed("'G@'", _NO_OPERATOR),
    "who.WhoTestCase.testWhoNickAway[mask]": _NAME,
    "who.WhoTestCase.testWhoNickOper*": _OPER,
    "who.WhoTestCase.testWhoNickAwayAndOper*": _OPER,
    "who.WhoTestCase.testWhoChan*": Allowed("'G@'", _NO_OPERATOR),
    "who.WhoTestCase.testWhoMultiChan": _NAME,
    "who.WhoTestCase.testWhoxFull": _NAME,
    "who.WhoTestCase.testWhoxFullReversed": _NAME,
    "who.WhoTestCase.testWhoUsernameRealName*": _IN_IRCTEST,
    "who.WhoTestCase.testWhoRealNameSpaces": _IN_IRCTEST,
    "who.WhoServicesTestCase.testWhoxAccount": Allowed(
        "capability: sasl",
        "The test connects before it registers, and our controller restarts the daemon then.",
    ),
    "who.WhoInvisibleTestCase.testWhoInvisible": Allowed("'352'", _MODES),
    "whois.WhoisTestCase.testWhoisNumerics[normal]": Allowed("@#chan1", _NO_OPERATOR),
    "whois.WhoisTestCase.testWhoisNumerics[away]": Allowed("@#chan1", _NO_OPERATOR),
    "whois.WhoisTestCase.testWhoisNumerics[oper]": _OPER,
    "whois.ServicesWhoisTestCase.testWhoisNumerics*": _ONE_PASSWORD,
    "whois.ServicesWhoisTestCase.testWhoisAccount": _ONE_PASSWORD,
    "whois.ServicesWhoisTestCase.testInvisibleWhois": Allowed("received 221", _MODES),
}
