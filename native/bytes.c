#include "bytes.h"

#include <stdlib.h>
#include <string.h>

#include "errors.h"

/* Make room for more bytes after the current content. */
void reserve(struct bytes *buffer, size_t more)
{
    size_t size = buffer->size ? buffer->size : 4096;
    unsigned char *data;

    if (buffer->size - buffer->length >= more)
        return;
    while (size - buffer->length < more)
        size *= 2;
    /* Static storage does not come from malloc: it is copied, and neither resized nor freed. */
    data = realloc(buffer->is_static ? NULL : buffer->data, size);
    if (!data)
        fail("out of memory");
    if (buffer->is_static)
        memcpy(data, buffer->data, buffer->length);
    buffer->data = data;
    buffer->size = size;
    buffer->is_static = false;
}

void add_bytes(struct bytes *buffer, const void *data, size_t n)
{
    if (!n) /* data may be NULL then, which memcpy does not allow */
        return;
    reserve(buffer, n);
    memcpy(buffer->data + buffer->length, data, n);
    buffer->length += n;
}

void put_u32(unsigned char *at, uint32_t value)
{
    at[0] = (unsigned char)(value >> 24);
    at[1] = (unsigned char)(value >> 16);
    at[2] = (unsigned char)(value >> 8);
    at[3] = (unsigned char)value;
}

uint32_t get_u32(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

bool starts_with(const char *text, const char *prefix)
{
    return !strncmp(text, prefix, strlen(prefix));
}
