"""Prompts of unknown programs: a question gets no text; text needs proof of a composer."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.holder.stage import Stage, script, wait_until

QUESTIONS = (
    "(Y)es/(N)o/(A)ll: ",
    "[A]bort, [R]etry, [F]ail: ",
    "Datei löschen (j/n) ",
    "Supprimer le fichier (o/n) ",
    "¿Continuar? (s/n) ",
    "Удалить файл? (д/н) ",
    "Usunąć plik [t/n]: ",
    "続行しますか？",
    "削除しますか（はい/いいえ）",
    "是否继续？",
    "确认删除 [是/否]: ",
    "هل تريد المتابعة؟ ",
    "계속하시겠습니까? ",
    "Select an option: ",
    "Select an option [1-4]: ",
    "Type YES to confirm: ",
    "Type the name of the repository to delete it: ",
    "Enter 6-digit code: ",
    "Enter passphrase (empty for no passphrase): ",
    "Enter file in which to save the key (/home/me/.ssh/id_rsa): ",
    "Username: ",
    "Username for 'https://github.com': ",
    "Password: ",
    "login: ",
    "Email: ",
    "Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: ",
    "Add file to the chat? (Y)es/(N)o/(A)ll/(S)kip all/(D)on't ask again [Yes]: ",
    "Allow edits to file that has not been added to the chat? (Y)es/(N)o [Yes]: ",
    "Proceed? [y/n] ",
    "Proceed ([y]/n)? ",
    "Do you want to continue? [Y/n] ",
    "Is this ok [y/d/N]: ",
    "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
    "Overwrite existing file (y/n/a)? ",
    "rm: remove regular file 'x'? ",
    "cp: overwrite './x'? ",
    "Press any key to continue . . . ",
    "Press ENTER to continue or CTRL-C to abort ",
    "Hit Enter to proceed",
    "--More--",
    "-- More -- (50%)",
    "#? ",
    "Choice> ",
    "Choose a number> ",
    "Your choice (1/2/3): ",
    "Pick one: ",
    "Which one do you want?",
    "What is your name? ",
    "Project name (my-app): ",
    "package name: (w) ",
    "version: (1.0.0) ",
    "Is this OK? (yes) ",
    "Commit message: ",
    "Stage this hunk [y,n,q,a,d,e,?]? ",
    "Apply deletion to worktree [y,n,q,a,d,?]? ",
    "(1/1) Discard this hunk from worktree [y,n,q,a,d,e,?]? ",
    "Enter a value: ",
    "Only 'yes' will be accepted to approve.\r\n\r\n  Enter a value: ",
    "Token: ",
    "API key: ",
    "One-time code: ",
    "Trust this certificate (t)emporarily, (p)ermanently or (R)eject? ",
    "(R)eject, accept (t)emporarily or accept (p)ermanently? ",
    "File exists: [o]verwrite, [s]kip, [r]ename, [q]uit: ",
    "Replace x? [y]es, [n]o, [A]ll, [N]one, [r]ename: ",
    "Retry, Ignore, Cancel: ",
    "Log in with: 1) Google  2) GitHub\r\nYour selection: ",
    "Continue without signing in, or log in now: ",
    "Paste the code from your browser here: ",
    "Waiting for you. Say go: ",
    "sudo: a password is required\r\nuser: ",
    "Deploy to production - are you sure",
    "Rate this answer from 1 to 5: ",
    "Modifier la configuration [O/n] : ",
    "Wollen Sie fortfahren [J/n]? ",
    "Vuoi continuare [S/n]? ",
    "Deseja continuar [S/n]? ",
    "Vill du fortsätta [J/n]? ",
    "Devam edilsin mi [E/h]? ",
)
MODES = ("line", "keys", "readline", "paste")
CLOSED = {"prompt", "dialog", "secret"}


@pytest.mark.parametrize("mode", MODES)
async def test_question_of_an_unknown_program_is_never_answered(
    stage: Stage, tmp_path: Path, mode: str
) -> None:
    assert len(QUESTIONS) >= 54
    record, questions = tmp_path / "record", tmp_path / "questions"
    questions.write_text(json.dumps(QUESTIONS))
    await stage.start(script("asking", str(record), str(questions), mode), cols=100)
    await stage.daemon.heard("lane")
    person = await stage.attach(cols=100)
    await person.until_shown(b"question 000")
    await stage.hook("SessionStart")
    answered = []

    for number, question in enumerate(QUESTIONS):
        await person.until_shown(f"question {number:03}".encode())
        for offer, priority in ((2 * number + 1, "normal"), (2 * number + 2, "interrupt")):
            stage.daemon.offer(offer, "all of it", priority=priority)
            answer = await stage.daemon.heard("answer", offer=offer)
            if answer["answer"] != "deferred" or answer["reason"] not in CLOSED:
                answered.append((question, priority, answer["answer"], answer.get("reason")))
        os.kill(stage.child, signal.SIGUSR1)

    assert answered == []
    assert record.read_bytes() == b""


async def take(stage: Stage, number: int) -> None:
    await stage.daemon.until(lambda: any(one["op"] == "gate" for one in stage.daemon.said))
    await stage.daemon.until(lambda: stage.daemon.last("gate")["open"])
    stage.daemon.offer(number, "hello")
    assert (await stage.daemon.heard("answer", offer=number))["answer"] == "seen"


async def test_python_prompt_gets_its_message(stage: Stage) -> None:
    await stage.start([sys.executable, "-I", "-q", "-i"])
    await stage.daemon.heard("lane")

    await take(stage, 1)

    person = await stage.attach()
    await person.until_shown(b"SyntaxError")


@pytest.mark.parametrize("sign", ["> ", ">>> ", "❯ "])
async def test_bare_prompt_sign_gets_its_message(stage: Stage, sign: str) -> None:
    await stage.start([sys.executable, "-I", "-u", "-c", f"while True: print(repr(input({sign!r})))"])
    await stage.daemon.heard("lane")

    await take(stage, 1)


@pytest.mark.parametrize("rule", ["what now", "^what now\\?? *$", "what \\w+\\? "])
async def test_prompt_named_at_the_start_gets_its_message(stage: Stage, rule: str) -> None:
    question = "what now" if rule == "what now" else "what now? "
    command = [sys.executable, "-I", "-u", "-c", f"while True: print(repr(input({question!r})))"]
    await stage.start(command, prompt=rule)
    await stage.daemon.heard("lane")

    await take(stage, 1)
    await stage.daemon.heard("gate", open=True)


async def test_program_that_reads_single_keys_gets_nothing_at_a_named_prompt(
    stage: Stage, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    await stage.start(script("keys", str(record), "single"), prompt=".*")
    await stage.daemon.heard("lane")
    await stage.until_ready()

    await stage.daemon.heard("gate", open=False, reason="prompt")
    stage.daemon.offer(1, "hello")

    answer = await stage.daemon.heard("answer", offer=1)
    assert (answer["answer"], answer["reason"]) == ("deferred", "prompt")
    assert record.read_bytes() == b""


SINGLE_KEY = """
import os, readline, sys, tty
tty.setcbreak(0)
os.write(1, b"d deletes the work, k keeps it\\r\\n> ")
key = os.read(0, 1)
open(sys.argv[1], "wb").write(key)
"""


async def test_single_key_question_is_not_answered_although_readline_is_loaded(
    stage: Stage, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    await stage.start([sys.executable, "-I", "-c", SINGLE_KEY, str(record)])
    await stage.daemon.heard("lane")
    person = await stage.attach()
    await person.until_shown(b"keeps it")

    await stage.daemon.heard("gate", open=False, reason="prompt")
    stage.daemon.offer(1, "hello")

    answer = await stage.daemon.heard("answer", offer=1)
    assert (answer["answer"], answer["reason"]) == ("deferred", "prompt")
    assert not record.exists()


ONCE_PASTED = """
import os, tty, termios
before = termios.tcgetattr(0)
tty.setraw(0)
os.write(1, b"ready\\r\\n\\x1b[?2004hask> ")
while not os.read(0, 4096).endswith(b"\\r"): pass
termios.tcsetattr(0, termios.TCSANOW, before)
os.write(1, b"\\x1b[?2004l\\r\\nask> ")
while True: os.write(1, b"got " + os.read(0, 4096) + b"ask> ")
"""


async def test_prompt_that_took_a_message_gets_the_next_one(stage: Stage) -> None:
    await stage.start([sys.executable, "-I", "-c", ONCE_PASTED])
    await stage.daemon.heard("lane")
    await take(stage, 1)

    await take(stage, 2)

    person = await stage.attach()
    await person.until_shown(b"got [pal message")


async def test_leftover_paste_mode_does_not_prove_a_composer(stage: Stage) -> None:
    command = "printf 'ready\\n\\033[?2004hwho: '; read x; echo GOT=$x"
    await stage.start(["bash", "-c", command])
    await stage.daemon.heard("lane")

    await stage.daemon.heard("gate", open=False, reason="prompt")
    stage.daemon.offer(1, "hello")

    assert (await stage.daemon.heard("answer", offer=1))["reason"] == "prompt"


async def test_user_profile_file_names_the_prompt(stage: Stage) -> None:
    folder = stage.home / "profiles"
    folder.mkdir()
    (folder / "broken.toml").write_text("prompts = 'x'\n")
    (folder / "python.toml").write_text(
        f"commands = [{Path(sys.executable).name!r}]\nprompts = ['say it: ']\ndialogs = ['^danger']\n"
    )
    reading = "import sys\nwhile True: print(repr(input('say it: ')) + sys.argv[1])"
    await stage.start([sys.executable, "-I", "-u", "-c", reading, "\ndanger here"])
    await stage.daemon.heard("lane")

    await take(stage, 1)

    await stage.daemon.heard("gate", open=False, reason="dialog")


async def test_upgraded_holder_keeps_the_named_prompt(stage: Stage) -> None:
    command = [sys.executable, "-I", "-u", "-c", "while True: print(repr(input('what now? ')))"]
    await stage.start(command, prompt="what now\\? ")
    await stage.daemon.heard("lane")
    await take(stage, 1)

    os.kill(stage.holder, signal.SIGUSR2)
    await stage.daemon.heard("lane", count=2)

    await wait_until(lambda: stage.daemon.last("gate").get("lane") == 2 and stage.daemon.last("gate")["open"])


DRAWN = """
import os, sys, tty
tty.setraw(0)
os.write(1, b"\\x1b[?1049h\\x1b[?2004h" + sys.argv[1].encode())
keys = os.read(0, 4096)
open(sys.argv[2], "wb").write(keys)
"""


@pytest.mark.parametrize(
    "drawn",
    [
        "| Delete all of it |\r\n|  <  Yes  >   <  No  >  |\x1b[2;5H",
        "| Pick a colour |\r\n| (*) red |\r\n| ( ) blue |\x1b[2;3H",
        "Delete all of it\r\n\r\n  [ Yes ]  [ No ]\x1b[H",
        "\x1b[?25lDelete all of it\r\n  Yes\r\n  No\r\n",
    ],
    ids=["buttons", "radio", "home", "hidden"],
)
async def test_a_drawn_question_with_paste_mode_gets_no_key(stage: Stage, tmp_path: Path, drawn: str) -> None:
    record = tmp_path / "record"
    await stage.start([sys.executable, "-I", "-c", DRAWN, drawn, str(record)])
    await stage.daemon.heard("lane")

    await stage.daemon.heard("gate", open=False, reason="prompt")
    for number, priority in ((1, "normal"), (2, "interrupt")):
        stage.daemon.offer(number, "hello", priority=priority)
        answer = await stage.daemon.heard("answer", offer=number)
        assert (answer["answer"], answer["reason"]) == ("deferred", "prompt")

    assert not record.exists()


SAYS_WORKING = """
import os
os.write(1, b"\\x1b]7501;state=working\\x07Which colour: ")
print("GOT", input())
"""


async def test_an_interrupt_does_not_reach_a_line_that_is_asked_for(stage: Stage) -> None:
    await stage.start([sys.executable, "-I", "-u", "-c", SAYS_WORKING])
    await stage.daemon.heard("lane")
    person = await stage.attach()
    await person.until_shown(b"colour:")

    stage.daemon.offer(1, "now", priority="interrupt")

    answer = await stage.daemon.heard("answer", offer=1)
    assert (answer["answer"], answer["reason"]) == ("deferred", "prompt")
    await person.press(b"red\r")
    await person.until_shown(b"GOT red")


WORKS_A_MOMENT = """
import time
while True:
    print("GOT", input("> "))
    time.sleep(0.2)
"""


async def test_an_interrupt_right_after_a_message_does_not_end_the_agent(stage: Stage) -> None:
    await stage.start([sys.executable, "-I", "-u", "-c", WORKS_A_MOMENT])
    await stage.daemon.heard("lane")
    await take(stage, 1)

    stage.daemon.offer(2, "now", priority="interrupt")

    assert (await stage.daemon.heard("answer", offer=2))["answer"] == "seen"
    await take(stage, 3)
