/* Growing buffers, numbers on the wire, and a test for a prefix. */
#ifndef PAL_BYTES_H
#define PAL_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing buffer. Its first storage may be static, so that the common commands allocate no memory. */
struct bytes {
    unsigned char *data;
    size_t length, size;
    bool is_static;
};

void reserve(struct bytes *buffer, size_t more);
void add_bytes(struct bytes *buffer, const void *data, size_t n);

/* Numbers on the wire are big-endian. */
void put_u32(unsigned char *at, uint32_t value);
uint32_t get_u32(const unsigned char *at);

bool starts_with(const char *text, const char *prefix);

#endif
