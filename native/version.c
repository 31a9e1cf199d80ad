#include "version.h"

#include <limits.h> /* defines __GLIBC__ where that is the C library */
#ifdef __linux__
#include <sys/auxv.h>
#endif

const char *describe_build(void)
{
#if defined(__GLIBC__)
    return getauxval(AT_BASE) ? "native, dynamic glibc" : "native, static glibc"; /* AT_BASE: the dynamic linker */
#elif defined(__linux__)
    return getauxval(AT_BASE) ? "native, dynamic musl" : "native, static musl";
#else
    return "native, dynamic";
#endif
}
