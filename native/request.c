#include "request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "call.h"
#include "errors.h"
#include "home.h"
#include "variables.h"
#include "version.h"
#include "wire.h"

extern char **environ;

static unsigned char request_room[2 * PIECE];

struct bytes request = {request_room, 0, sizeof request_room, true};

void add_field(char tag, const void *data, size_t n)
{
    unsigned char head[HEAD];

    head[0] = (unsigned char)tag;
    put_u32(head + 1, (uint32_t)n);
    add_bytes(&request, head, HEAD);
    add_bytes(&request, data, n);
}

static void add_text(char tag, const char *text)
{
    add_field(tag, text, strlen(text));
}

/* Add which of standard input, output and error are terminals, and the width of one of them. */
static void add_terminals(void)
{
    static const int WIDTH_FROM[] = {STDOUT_FILENO, STDERR_FILENO, STDIN_FILENO};
    char terminals[] = "000", width[16];
    struct winsize window = {0};

    for (int fd = 0; fd < 3; fd++)
        if (isatty(fd))
            terminals[fd] = '1';
    for (int i = 0; i < 3 && !window.ws_col; i++)
        if (terminals[WIDTH_FROM[i]] == '1' && ioctl(WIDTH_FROM[i], TIOCGWINSZ, &window))
            window.ws_col = 0;
    snprintf(width, sizeof width, "%u", (unsigned)window.ws_col);
    add_text('t', terminals);
    add_text('w', width);
}

void build_request(void)
{
    unsigned char key[KEY_LENGTH];

    if (getentropy(key, sizeof key))
        fail("no random bytes: %s", error_text(errno));
    request.length = 0;
    add_bytes(&request, "PAL1R\0\0\0\0", REQUEST_HEAD);
    add_field('k', key, sizeof key);
    add_text('v', PAL_VERSION);
    for (int i = 1; i < call.count; i++)
        add_text('a', call.all[i]);
    add_text('d', working_directory);
    for (char **entry = environ; *entry; entry++)
        if (is_for_request(*entry))
            add_text('e', *entry);
    add_terminals();
    add_text('c', "GWM"); /* the additional frames that this client understands */
    if (call.is_doctor)
        add_text('n', describe_build());
}

void set_protocol(const char *name)
{
    memcpy(request.data, name, 4);
}
