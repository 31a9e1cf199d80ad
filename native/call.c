#include "call.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bytes.h"
#include "errors.h"
#include "variables.h"

struct call call;

static bool is_same(const char *one, const char *other)
{
    return !strcmp(one, other);
}

/* Return whether an option makes `recv` or `events` wait. */
static bool is_waiting_option(const char *argument)
{
    return is_same(argument, "--follow") || is_same(argument, "--wait") || starts_with(argument, "--wait=") ||
           is_same(argument, "--timeout") || starts_with(argument, "--timeout=");
}

/* Return the argument after the verb, or an empty string. Only options of every command may be before it: the value of any
   other option must not be taken for a subcommand. */
static const char *find_subverb(void)
{
    for (int i = call.verb_at + 1; i < call.count && !is_same(call.all[i], "--"); i++) {
        const char *argument = call.all[i];
        if (is_same(argument, "--home") || is_same(argument, "--as"))
            i++;
        else if (argument[0] != '-')
            return argument;
        else if (!is_same(argument, "--json") && !is_same(argument, "--text") && !starts_with(argument, "--home=") &&
                 !starts_with(argument, "--as="))
            break;
    }
    return "";
}

/* Return whether the command only shows the bus. */
static bool is_looking(const char *verb, const char *subverb)
{
    return is_same(verb, "list") || is_same(verb, "doctor") || (is_same(verb, "status") && !is_same(subverb, "set")) ||
           (is_same(verb, "events") && !is_same(subverb, "sub") && !is_same(subverb, "unsub"));
}

/* Read the options up to `--`, and find the verb. */
static void read_options(void)
{
    for (int i = 1; i < call.count; i++) {
        const char *argument = call.all[i];
        if (is_same(argument, "--")) {
            if (!call.verb_at && i + 1 < call.count)
                call.verb_at = i + 1;
            break;
        }
        /* Options with a value are skipped together with it, or their value would be read as the verb. */
        if (is_same(argument, "--home")) {
            call.has_home = true;
            call.home = call.all[++i]; /* NULL at the end */
        } else if (starts_with(argument, "--home=")) {
            call.has_home = true;
            call.home = argument + strlen("--home=");
        } else if (is_same(argument, "--as")) {
            i++;
        } else if (is_same(argument, "--help") || is_same(argument, "-h")) {
            call.is_help = true;
        } else if (is_same(argument, "--foreground")) {
            call.is_foreground = true;
        } else if (is_same(argument, "--repair")) {
            call.is_repair = true;
        } else if (is_same(argument, "--json")) {
            call.is_json = true;
        } else if (is_waiting_option(argument)) {
            call.is_waiting = true;
        } else if (!call.verb_at && is_same(argument, "--version")) {
            call.is_version = true;
        } else if (!call.verb_at && argument[0] != '-') {
            call.verb_at = i;
        }
    }
}

/* Return whether a person has typed `pal` alone, at a terminal that can show the dashboard. */
static bool is_alone(void)
{
    const char *terminal = getenv("TERM");

    for (int i = 1; i < call.count; i++) {
        if (is_same(call.all[i], "--home"))
            i++;
        else if (!starts_with(call.all[i], "--home="))
            return false;
    }
    /* An agent or a tool inside a harness gets the help: it cannot use a full-screen program. */
    if (is_inside_harness())
        return false;
    return terminal && *terminal && !is_same(terminal, "dumb") && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

/* Continue as if the person had typed `pal ui`. */
static void add_ui(void)
{
    static char ui[] = "ui";
    char **all = calloc((size_t)call.count + 2, sizeof *all);

    if (!all)
        fail("out of memory");
    memcpy(all, call.all, (size_t)call.count * sizeof *all);
    call.verb_at = call.count;
    all[call.count++] = ui;
    call.all = all;
}

void read_arguments(int count, char **all)
{
    const char *verb, *subverb;

    call.count = count > 0 ? count : 1; /* a caller may give no arguments, not even the name */
    call.all = all;
    read_options();
    if (!call.verb_at && count > 0 && is_alone())
        add_ui();
    verb = call.verb_at ? call.all[call.verb_at] : "help";
    subverb = find_subverb();
    /* Completion runs while a person types, and its script at every start of a shell: like help, it starts nothing. */
    if (is_same(verb, "help") || is_same(verb, "completion") || is_same(verb, "__complete"))
        call.is_help = true;
    call.is_doctor = is_same(verb, "doctor") && !call.is_help;
    call.is_repair = call.is_repair && call.is_doctor;
    call.is_waiting = !call.is_help && ((call.is_waiting && (is_same(verb, "recv") || is_same(verb, "events"))) ||
                                        (is_same(verb, "stick") && is_same(subverb, "wait")));
    if (call.is_help) /* help never has an effect, whatever the other arguments are */
        return;
    call.is_look = is_looking(verb, subverb);
    call.is_hook = is_same(verb, "hook");
    call.is_up = is_same(verb, "up");
    call.is_down = is_same(verb, "down");
    call.is_mcp = is_same(verb, "mcp");
    call.is_rewake = is_same(verb, "rewake");
    call.is_monitor = call.is_rewake || is_same(verb, "monitor");
}

bool has_unknown_arguments(void)
{
    for (int i = 1; i < call.count; i++) {
        const char *argument = call.all[i];
        if (is_same(argument, "--home") || is_same(argument, "--as"))
            i++;
        else if (i != call.verb_at && !is_same(argument, "--json") && !starts_with(argument, "--home=") &&
                 !(call.is_up && is_same(argument, "--foreground")))
            return true;
    }
    return false;
}
