"""Every request on a line: as a struct, and as its bytes. These bytes do not change.

Each request has two examples: with only its required fields, and with every field.
"""

import msgspec

from palaver.protocol import lines as holder
from palaver.protocol import lines as program
from palaver.protocol.events import Outcome
from palaver.protocol.lines import Op
from palaver.protocol.paths import MigratedAutoRun, MigratedMessage, MigratedSession, MigratedSubscription
from palaver.protocol.views import AskAttention, AskLog

LEAST: list[tuple[Op, bytes]] = [
    (program.WhoamiOp(), b'{"req":7,"op":"whoami"}'),
    (program.JoinOp(), b'{"req":7,"op":"join"}'),
    (program.LeaveOp(), b'{"req":7,"op":"leave"}'),
    (program.SendOp(text="hello"), b'{"req":7,"op":"send","text":"hello"}'),
    (
        program.PutOp(envelope=msgspec.Raw(b'{"v":1}')),
        b'{"req":7,"op":"put","envelope":{"v":1}}',
    ),
    (program.ListenOp(), b'{"req":7,"op":"listen"}'),
    (program.UnlistenOp(), b'{"req":7,"op":"unlisten"}'),
    (program.AckOp(messages=(1, 2)), b'{"req":7,"op":"ack","messages":[1,2]}'),
    (program.StatusOp(state="active"), b'{"req":7,"op":"status","state":"active"}'),
    (program.EventsOp(), b'{"req":7,"op":"events"}'),
    (program.ToolOp(tool="join_path"), b'{"req":7,"op":"tool","tool":"join_path"}'),
    (program.ListOp(), b'{"req":7,"op":"list"}'),
    (program.ReceiptsOp(message="42"), b'{"req":7,"op":"receipts","message":"42"}'),
    (program.NoticeOp(key="held/42@1"), b'{"req":7,"op":"notice","key":"held/42@1"}'),
    (program.ViewOp(), b'{"req":7,"op":"view"}'),
    (program.AskOp(ask=AskAttention()), b'{"req":7,"op":"ask","ask":{"what":"attention"}}'),
    (program.RouteOp(path="build/done"), b'{"req":7,"op":"route","path":"build/done"}'),
    (program.SubscribeOp(pattern="build/*"), b'{"req":7,"op":"subscribe","pattern":"build/*"}'),
    (program.UnsubscribeOp(pattern="build/*"), b'{"req":7,"op":"unsubscribe","pattern":"build/*"}'),
    (program.SubscriptionsOp(), b'{"req":7,"op":"subscriptions"}'),
    (program.ReceiveOp(), b'{"req":7,"op":"receive"}'),
    (program.HistoryOp(), b'{"req":7,"op":"history"}'),
    (program.DeadLettersOp(), b'{"req":7,"op":"dead_letters"}'),
    (program.ClearDeadLettersOp(), b'{"req":7,"op":"clear_dead_letters"}'),
    (program.MigrateOp(), b'{"req":7,"op":"migrate"}'),
    (program.BridgeOp(network="net"), b'{"req":7,"op":"bridge","network":"net"}'),
    (
        program.RelayOp(network="net", nick="bob", text="hi"),
        b'{"req":7,"op":"relay","network":"net","nick":"bob","text":"hi"}',
    ),
    (program.RunnerOp(secret="s"), b'{"req":7,"op":"runner","secret":"s"}'),
    (program.NextJobOp(), b'{"req":7,"op":"turn_next"}'),
    (program.TurnProcessOp(pid=9), b'{"req":7,"op":"turn_process","pid":9}'),
    (program.TriagedOp(job=1), b'{"req":7,"op":"turn_triaged","job":1}'),
    (program.TurnEndOp(turn=42), b'{"req":7,"op":"turn_end","turn":42}'),
    (holder.HoldOp(pid=7), b'{"req":7,"op":"hold","pid":7}'),
    (
        holder.AccompanyOp(harness="opencode", session="ses_1"),
        b'{"req":7,"op":"accompany","harness":"opencode","session":"ses_1"}',
    ),
    (holder.LaneOp(kind="terminal"), b'{"req":7,"op":"lane","kind":"terminal"}'),
    (holder.GateOp(lane=1, open=True), b'{"req":7,"op":"gate","lane":1,"open":true}'),
    (
        holder.AnswerOp(lane=1, offer=2, answer="seen"),
        b'{"req":7,"op":"answer","lane":1,"offer":2,"answer":"seen"}',
    ),
    (holder.TypedOp(), b'{"req":7,"op":"typed"}'),
    (holder.TellOp(ask=3), b'{"req":7,"op":"tell","ask":3}'),
    (holder.SubBeginOp(key="a1"), b'{"req":7,"op":"sub_begin","key":"a1"}'),
    (holder.SubEndOp(key="a1"), b'{"req":7,"op":"sub_end","key":"a1"}'),
    (holder.PermissionOp(request="per_1"), b'{"req":7,"op":"permission","request":"per_1"}'),
]

MOST: list[tuple[Op, bytes]] = [
    (program.WhoamiOp(name="luna"), b'{"req":7,"op":"whoami","name":"luna"}'),
    (
        program.JoinOp(
            name="luna", tag="api", role="observer", harness="x", runtime="python", version="1", secret="s"
        ),
        b'{"req":7,"op":"join","name":"luna","tag":"api","role":"observer","harness":"x","runtime":"python",'
        b'"version":"1","secret":"s"}',
    ),
    (
        program.LeaveOp(name="luna", reason="exited with 0"),
        b'{"req":7,"op":"leave","name":"luna","reason":"exited with 0"}',
    ),
    (
        program.SendOp(
            text="hello",
            name="luna",
            to=("@nova", "#room"),
            mentions=True,
            intent="request",
            thread="pr-123",
            reply_to="42",
            priority="idle",
            expires_ms=10,
            id="01",
            bundle_id="bundle:0123",
            yes=True,
            dry_run=True,
            expects_reply=True,
        ),
        b'{"req":7,"op":"send","text":"hello","name":"luna","to":["@nova","#room"],"mentions":true,'
        b'"intent":"request","thread":"pr-123","reply_to":"42","priority":"idle","expires_ms":10,"id":"01",'
        b'"bundle_id":"bundle:0123","yes":true,"dry_run":true,"expects_reply":true}',
    ),
    (
        program.PutOp(envelope=msgspec.Raw(b'{"v":1}'), name="luna"),
        b'{"req":7,"op":"put","envelope":{"v":1},"name":"luna"}',
    ),
    (program.ListenOp(name="luna"), b'{"req":7,"op":"listen","name":"luna"}'),
    (program.UnlistenOp(name="luna"), b'{"req":7,"op":"unlisten","name":"luna"}'),
    (
        program.AckOp(messages=(1, 2), name="luna", lane="ui"),
        b'{"req":7,"op":"ack","messages":[1,2],"name":"luna","lane":"ui"}',
    ),
    (
        program.StatusOp(
            state="active", name="luna", detail="testing", tool="bash", command="make", file="a.py"
        ),
        b'{"req":7,"op":"status","state":"active","name":"luna","detail":"testing","tool":"bash",'
        b'"command":"make","file":"a.py"}',
    ),
    (
        program.EventsOp(
            name="luna",
            types=("a",),
            agents=("b",),
            senders=("c",),
            threads=("d",),
            rooms=("e",),
            after=1,
            last=2,
            search="w",
            limit=3,
            follow=True,
        ),
        b'{"req":7,"op":"events","name":"luna","types":["a"],"agents":["b"],"senders":["c"],"threads":["d"],'
        b'"rooms":["e"],"after":1,"last":2,"search":"w","limit":3,"follow":true}',
    ),
    (
        program.ToolOp(
            tool="join_path", name="luna", arguments={"context_path": "/src"}, cwd="/src", key="ab" * 16
        ),
        b'{"req":7,"op":"tool","tool":"join_path","name":"luna","arguments":{"context_path":"/src"},'
        b'"cwd":"/src","key":"abababababababababababababababab"}',
    ),
    (program.ListOp(name="luna", agent="nova"), b'{"req":7,"op":"list","name":"luna","agent":"nova"}'),
    (
        program.NoticeOp(key="held/42@1", name="luna", is_in_view=True),
        b'{"req":7,"op":"notice","key":"held/42@1","name":"luna","is_in_view":true}',
    ),
    (
        program.ReceiptsOp(message="42", name="luna"),
        b'{"req":7,"op":"receipts","message":"42","name":"luna"}',
    ),
    (
        program.ViewOp(name="luna", after=42, epoch="BOXE-1f"),
        b'{"req":7,"op":"view","name":"luna","after":42,"epoch":"BOXE-1f"}',
    ),
    (
        program.AskOp(ask=AskLog(at=42, after=7, search="tests"), name="luna"),
        b'{"req":7,"op":"ask","ask":{"what":"log","at":42,"after":7,"search":"tests"},"name":"luna"}',
    ),
    (
        program.RouteOp(
            path="build/done",
            name="luna",
            command="report",
            payload=[1],
            source="ci",
            external_id="run-9",
            id="01",
        ),
        b'{"req":7,"op":"route","path":"build/done","name":"luna","command":"report","payload":[1],'
        b'"source":"ci","external_id":"run-9","id":"01"}',
    ),
    (
        program.BridgeOp(network="net", name="luna"),
        b'{"req":7,"op":"bridge","network":"net","name":"luna"}',
    ),
    (
        program.RelayOp(network="net", nick="bob", text="hi", channel="#c", to="luna", id="01", name="luna"),
        b'{"req":7,"op":"relay","network":"net","nick":"bob","text":"hi","channel":"#c","to":"luna",'
        b'"id":"01","name":"luna"}',
    ),
    (
        program.SubscribeOp(pattern="build/*", name="luna", session="mon"),
        b'{"req":7,"op":"subscribe","pattern":"build/*","name":"luna","session":"mon"}',
    ),
    (
        program.UnsubscribeOp(pattern="build/*", name="luna", session="mon"),
        b'{"req":7,"op":"unsubscribe","pattern":"build/*","name":"luna","session":"mon"}',
    ),
    (
        program.SubscriptionsOp(name="luna", agent="nova", session="mon"),
        b'{"req":7,"op":"subscriptions","name":"luna","agent":"nova","session":"mon"}',
    ),
    (
        program.ReceiveOp(name="luna", session="mon", limit=5, since=1, until=2, key="ab" * 16),
        b'{"req":7,"op":"receive","name":"luna","session":"mon","limit":5,"since":1,"until":2,'
        b'"key":"abababababababababababababababab"}',
    ),
    (
        program.HistoryOp(name="luna", agent="nova", session="mon", limit=5, since=1, until=2),
        b'{"req":7,"op":"history","name":"luna","agent":"nova","session":"mon","limit":5,"since":1,"until":2}',
    ),
    (
        program.DeadLettersOp(name="luna", limit=5, since=1, until=2),
        b'{"req":7,"op":"dead_letters","name":"luna","limit":5,"since":1,"until":2}',
    ),
    (
        program.ClearDeadLettersOp(name="luna", key="ab" * 16),
        b'{"req":7,"op":"clear_dead_letters","name":"luna","key":"abababababababababababababababab"}',
    ),
    (
        program.MigrateOp(
            name="luna",
            agents=("nova",),
            sessions=(MigratedSession(agent="nova", session="mon", created=1, used=2, title="Team"),),
            subscriptions=(MigratedSubscription(agent="nova", pattern="a/*", added=3, session="mon"),),
            messages=(
                MigratedMessage(
                    id="m1",
                    sender="bridge",
                    path="a/b",
                    ts=4,
                    command="new",
                    payload=[1],
                    source="slack",
                    external_id="e",
                    mailboxes=("nova+mon", "nova"),
                    taken=("nova+mon",),
                    handled={"nova": ("mon",)},
                ),
            ),
            auto_runs=(MigratedAutoRun(agent="nova", value=True, session="mon"),),
        ),
        b'{"req":7,"op":"migrate","name":"luna","agents":["nova"],"sessions":[{"agent":"nova","session":"mon",'
        b'"created":1,"used":2,"title":"Team"}],"subscriptions":[{"agent":"nova","pattern":"a/*","added":3,'
        b'"session":"mon"}],"messages":[{"id":"m1","sender":"bridge","path":"a/b","ts":4,"command":"new",'
        b'"payload":[1],"source":"slack","external_id":"e","mailboxes":["nova+mon","nova"],'
        b'"taken":["nova+mon"],"handled":{"nova":["mon"]}}],"auto_runs":[{"agent":"nova","value":true,'
        b'"session":"mon"}]}',
    ),
    (
        program.RunnerOp(secret="s", ticket="t", running=(42, 57), leaves=True, name="human"),
        b'{"req":7,"op":"runner","secret":"s","ticket":"t","running":[42,57],"leaves":true,"name":"human"}',
    ),
    (program.NextJobOp(name="human"), b'{"req":7,"op":"turn_next","name":"human"}'),
    (
        program.TurnProcessOp(pid=9, job=1, turn=42, name="human"),
        b'{"req":7,"op":"turn_process","pid":9,"job":1,"turn":42,"name":"human"}',
    ),
    (
        program.TriagedOp(job=1, output="YES", error="timeout", name="human"),
        b'{"req":7,"op":"turn_triaged","job":1,"output":"YES","error":"timeout","name":"human"}',
    ),
    (
        program.TurnEndOp(turn=42, output="done", error="timeout", harness_session="h1", name="human"),
        b'{"req":7,"op":"turn_end","turn":42,"output":"done","error":"timeout","harness_session":"h1",'
        b'"name":"human"}',
    ),
    (
        holder.HoldOp(
            pid=7,
            name="luna",
            ticket="t",
            secret="s",
            cols=80,
            rows=24,
            version="1",
            session="ses_1",
            among=("ses_2",),
        ),
        b'{"req":7,"op":"hold","pid":7,"name":"luna","ticket":"t","secret":"s","cols":80,"rows":24,'
        b'"version":"1","session":"ses_1","among":["ses_2"]}',
    ),
    (
        holder.AccompanyOp(harness="opencode", session="ses_1", name="luna", cwd="/src", version="1"),
        b'{"req":7,"op":"accompany","harness":"opencode","session":"ses_1","name":"luna","cwd":"/src",'
        b'"version":"1"}',
    ),
    (
        holder.LaneOp(
            kind="native",
            name="luna",
            reaches_busy=False,
            wakes_idle=False,
            remembers=True,
            outcomes=(Outcome(messages=(1, 2), answer="seen", grade="handed", name="luna_reviewer_1"),),
            carrying=(4,),
        ),
        b'{"req":7,"op":"lane","kind":"native","name":"luna","reaches_busy":false,"wakes_idle":false,'
        b'"remembers":true,"outcomes":[{"messages":[1,2],"answer":"seen","grade":"handed",'
        b'"name":"luna_reviewer_1"}],"carrying":[4]}',
    ),
    (
        holder.GateOp(lane=1, open=False, name="luna", paused=True, reason="dialog"),
        b'{"req":7,"op":"gate","lane":1,"open":false,"name":"luna","paused":true,"reason":"dialog"}',
    ),
    (
        holder.AnswerOp(
            lane=1, offer=2, answer="refused", name="luna", grade="handed", reason="r", evidence="e"
        ),
        b'{"req":7,"op":"answer","lane":1,"offer":2,"answer":"refused","name":"luna","grade":"handed",'
        b'"reason":"r","evidence":"e"}',
    ),
    (
        holder.TypedOp(text="blue", name="luna", secret=4),
        b'{"req":7,"op":"typed","text":"blue","name":"luna","secret":4}',
    ),
    (
        holder.TellOp(ask=3, name="luna", ok={"text": "$ "}, error="bad_request", message="no", done=False),
        b'{"req":7,"op":"tell","ask":3,"name":"luna","ok":{"text":"$ "},"error":"bad_request",'
        b'"message":"no","done":false}',
    ),
    (
        holder.SubBeginOp(key="a1", name="luna", type="reviewer"),
        b'{"req":7,"op":"sub_begin","key":"a1","name":"luna","type":"reviewer"}',
    ),
    (
        holder.SubEndOp(key="a1", name="luna", reason="done"),
        b'{"req":7,"op":"sub_end","key":"a1","name":"luna","reason":"done"}',
    ),
    (
        holder.PermissionOp(
            request="per_1",
            name="luna",
            session="ses_1",
            tool="bash",
            input={"command": "x"},
            outcome="gone",
        ),
        b'{"req":7,"op":"permission","request":"per_1","name":"luna","session":"ses_1","tool":"bash",'
        b'"input":{"command":"x"},"outcome":"gone"}',
    ),
]
