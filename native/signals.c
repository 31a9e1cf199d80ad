#include "signals.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire.h"

enum { END_LIMIT_S = 2 }; /* to write the daemon's output after a signal, when the reader does not read */

volatile sig_atomic_t can_send_signal;
volatile sig_atomic_t ending;

static const int CAUGHT[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

static volatile sig_atomic_t is_follower;
static volatile sig_atomic_t is_graceful; /* report SIGTERM and SIGHUP to the daemon, which then ends the command */
static volatile sig_atomic_t has_sent_signal;
static int64_t first_seq = -1; /* where a follower began; -1 when unknown */

void handle_signal(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    sigset_t set;

    sigaction(number, &action, NULL);
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

_Noreturn void die_of(int number)
{
    handle_signal(number, SIG_DFL);
    raise(number);
    _exit(128 + number);
}

static void send_signal(int number)
{
    const unsigned char frame[HEAD + 1] = {'S', 0, 0, 0, 1, (unsigned char)number};

    /* A signal handler calls this, and must not wait for a daemon that does not read. */
    send(wire, frame, sizeof frame, MSG_DONTWAIT | MSG_NOSIGNAL);
    has_sent_signal = 1;
}

void send_late_signal(void)
{
    if (ending && !has_sent_signal)
        send_signal(ending);
}

/* Return the largest number in a text, or -1: the tokens of a follower contain only seqs. */
static int64_t largest_number(const unsigned char *text, size_t n)
{
    int64_t largest = -1, number = -1;

    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            number = -1;
        else if (number < INT64_MAX / 10 - 1)
            number = (number < 0 ? 0 : number) * 10 + (text[i] - '0');
        if (number > largest)
            largest = number;
    }
    return largest;
}

_Noreturn void end_follower(int number)
{
    int64_t seq = largest_number(token.data, token.length);
    char line[64] = "cursor_event_seq=", digits[24];
    size_t n = strlen(line), count = 0;

    if (seq < first_seq)
        seq = first_seq;
    if (seq < 0)
        die_of(number);
    do /* snprintf may not be called in a signal handler */
        digits[count++] = (char)('0' + seq % 10);
    while (seq /= 10);
    while (count)
        line[n++] = digits[--count];
    line[n++] = '\n';
    (void)!write(STDERR_FILENO, line, n);
    _exit(0);
}

/* Runs at any point, also inside a blocked write; so it does only one send that cannot block. */
static void on_signal(int number)
{
    bool is_term_or_hup = number == SIGTERM || number == SIGHUP;
    bool is_end = is_graceful && !ending && is_term_or_hup;

    if (is_follower && !is_graceful && is_term_or_hup)
        end_follower(number);
    if (is_end) {
        ending = number;
        alarm(END_LIMIT_S); /* do not wait for a reader that never reads or a daemon that is stuck */
    }
    /* In the middle of another frame, S would be read as its content; then closing the socket must be enough. */
    if (can_send_signal && !has_sent_signal)
        send_signal(number);
    if (!is_end)
        die_of(number);
}

static void on_end_limit(int number)
{
    (void)number;
    die_of(ending);
}

void catch_signals(void)
{
    /* Without SA_RESTART: a wait must end, so that its loop sees `ending`. */
    struct sigaction action = {.sa_handler = on_signal}, before;

    for (size_t i = 0; i < sizeof CAUGHT / sizeof *CAUGHT; i++) {
        sigaction(CAUGHT[i], &action, &before);
        if (before.sa_handler == SIG_IGN) /* under nohup, or as a background job: it must stay ignored */
            sigaction(CAUGHT[i], &before, NULL);
    }
}

void release_signals(void)
{
    for (size_t i = 0; i < sizeof CAUGHT / sizeof *CAUGHT; i++)
        signal(CAUGHT[i], SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
}

void begin_following(const unsigned char *seq, size_t n)
{
    handle_signal(SIGALRM, on_end_limit);
    if (n)
        first_seq = largest_number(seq, n);
    is_follower = 1;
    is_graceful = 1;
}

void end_following(void)
{
    is_graceful = 0;
    can_send_signal = 0;
}
