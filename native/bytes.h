/*
 * Growing buffers, numbers on the wire, and other small functions. Part of pal.c.
 *
 * A buffer that outgrows its first storage needs the C library's memory: an early start ends there.
 */

static void pause_ms(int ms)
{
    poll(NULL, 0, ms);
}

static void reserve(struct bytes *b, size_t more)
{
    size_t size = b->size ? b->size : 4096;
    unsigned char *data;

    if (b->size - b->length >= more)
        return;
    need_library();
    while (size - b->length < more)
        size *= 2;
    data = realloc(b->fixed ? NULL : b->data, size);
    if (!data)
        fail("out of memory");
    if (b->fixed)
        copy(data, b->data, b->length);
    b->data = data;
    b->size = size;
    b->fixed = false;
}

static void add(struct bytes *b, const void *data, size_t n)
{
    reserve(b, n);
    copy(b->data + b->length, data, n);
    b->length += n;
}

static void put_u32(unsigned char *at, uint32_t value)
{
    at[0] = (unsigned char)(value >> 24);
    at[1] = (unsigned char)(value >> 16);
    at[2] = (unsigned char)(value >> 8);
    at[3] = (unsigned char)value;
}

static uint32_t get_u32(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Return a path in the home. Each call allocates memory, which is freed when the short-lived process ends. */
static char *in_home(const char *name)
{
    size_t n = strlen(home), m = strlen(name) + 1;
    char *path = malloc(n + 1 + m);

    if (!path)
        fail("out of memory");
    memcpy(path, home, n);
    path[n] = '/';
    memcpy(path + n + 1, name, m);
    return path;
}

/* If the caller closed 0, 1 or 2, our descriptor must not get that number: output would go there. */
static int above_stdio(int fd)
{
    int higher;

    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    higher = sys_move_up(fd, STDERR_FILENO + 1);
    sys_close(fd);
    return higher;
}

static bool is_named(const char *entry, const char *const *names)
{
    for (; *names; names++)
        if (starts(entry, *names) && entry[length_of(*names)] == '=')
            return true;
    return false;
}
