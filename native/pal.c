/*
 * pal: the thin client of Palaver.
 *
 * It sends its arguments, working directory and a few chosen variables to the daemon and then does what the daemon
 * asks: read standard input, read a file, write this text, run this verb in Python, exit. It handles only the verbs up,
 * down, hook, monitor, rewake, mcp and help itself, parses no reply, and reads nothing that it was not asked to read.
 * It is written in C because it runs once for every command and every hook: the common path is one connect, one send,
 * one read, one write and one acknowledgement. The Python package contains the same client in Python; one suite tests
 * both.
 */
#include <stddef.h>
#include <unistd.h>

#include "call.h"
#include "descriptors.h"
#include "errors.h"
#include "frames.h"
#include "home.h"
#include "hook.h"
#include "monitor.h"
#include "pump.h"
#include "python.h"
#include "request.h"
#include "signals.h"
#include "start.h"
#include "version.h"
#include "wire.h"

static _Noreturn void print_version(void)
{
    static const char JSON[] = "{\"version\":\"" PAL_VERSION "\"}\n", TEXT[] = "pal " PAL_VERSION "\n";
    int error = call.is_json ? write_all(STDOUT_FILENO, JSON, sizeof JSON - 1)
                             : write_all(STDOUT_FILENO, TEXT, sizeof TEXT - 1);

    if (error)
        fail("standard output: %s", error_text(error));
    _exit(0);
}

/* Make the request until the daemon ends the command, and repeat it when the daemon is lost. */
static _Noreturn void run_command(void)
{
    for (int repeats = 0; repeats <= REPEATS || is_patient; repeats++) {
        wire = open_wire(repeats);
        if (wire < 0)
            continue;
        send_request();
        serve();
        close_wire();
        if (ending) /* the daemon was lost before it could end the command */
            end_follower(ending);
        if (has_received_frame)
            repeats = 0;
    }
    fail("the connection to the daemon was lost");
}

int main(int argc, char **argv)
{
    read_arguments(argc, argv);
    if (call.is_version)
        print_version();
    if (call.is_hook)
        begin_hook_limit();
    find_working_directory();
    find_home();
    if (call.is_repair) /* the daemon may not be able to start, and must not run */
        run_python("palaver.app", call.all + 1, call.count - 1);
    if (call.is_up || call.is_down)
        check_arguments();
    if (call.is_up && call.is_foreground)
        run_in_foreground();
    build_request();
    if (call.is_hook)
        run_hook();
    if (call.is_rewake)
        begin_rewake();
    catch_signals();
    if (call.is_monitor)
        run_monitor();
    if (call.is_mcp && isatty(STDIN_FILENO))
        fail("a harness runs 'pal mcp' and talks to it in MCP over standard input; it is not for a terminal. "
             "Add it to a harness: claude mcp add palaver -- pal mcp");
    if (call.is_mcp)
        run_pump();
    run_command();
}
