/* The version of this program, and how it was built. */
#ifndef PAL_VERSION_H
#define PAL_VERSION_H

#ifndef PAL_VERSION /* the build defines it */
#define PAL_VERSION "0+unknown"
#endif

/* Return how this program was built, for `pal doctor`: "native, static musl". */
const char *describe_build(void);

#endif
